export { endBySignal } from "./end-by-signal.ts";
