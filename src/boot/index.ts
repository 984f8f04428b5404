export { bootBridge } from "./bridge.ts";
export { boot } from "./boot.ts";
