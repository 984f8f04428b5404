export { printError, leaveStandardErrorBlocking } from "../platform/index.ts";
export { boot } from "./boot.ts";
export { HELP } from "./help.ts";
export { bootBridge, bootCheck, bootCheckConfiguration, bootInstall } from "./subcommands.ts";
