export { complain, leaveStandardErrorBlocking } from "../platform/index.ts";
export { boot } from "./boot.ts";
export { bootBridge, bootCheck, bootCheckConfiguration } from "./subcommands.ts";
