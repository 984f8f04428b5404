export { bootBridge } from "./bridge.ts";
export { boot } from "./boot.ts";
export { bootCheck } from "./check.ts";
