export { complain, leaveStandardErrorBlocking } from "../platform/index.ts";
export { bootBridge } from "./bridge.ts";
export { boot } from "./boot.ts";
export { bootCheck } from "./check.ts";
