export { endBySignal } from "./end-by-signal.ts";
export { cleanUpAtSignal, defaultSignals, handleSignals } from "./signals.ts";
