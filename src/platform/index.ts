export { fileAccounts } from "./accounts.ts";
export { guestClock } from "./clock.ts";
export { guestKernel, processRandomness } from "./kernel/index.ts";
export { jsonLog, type LineWriter, stderrWriter } from "./log.ts";
export { NativeProcesses, openFilesLimitForChildren } from "./processes/index.ts";
export { processSignals } from "./signals.ts";
export { BufferPool } from "./streams/index.ts";
export { nodeTimers } from "./timers.ts";
