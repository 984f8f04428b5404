export { complain, leaveStandardErrorBlocking } from "../platform/index.ts";
export { boot } from "./boot.ts";
export { bootBridge, bootCheck, bootCheckConfiguration, bootInstall } from "./subcommands.ts";
