export { fileAccounts } from "./accounts.ts";
export { arrivalsWatcher } from "./arrivals.ts";
export { relaxClientCertificateChecks } from "./certificate-checks.ts";
export { guestClock, nodeTimers } from "./clock.ts";
export { dropProgramCache, fileCacheDropper, MemoryKeeper } from "./memory.ts";
export { guestKernel, processRandomness } from "./kernel.ts";
export { guestFileSystem } from "./files/file-system.ts";
export { type Inheritance, takeInheritance } from "./inherited-environment.ts";
export { LauncherChannel, mergeSignals } from "./launcher-channel.ts";
export {
  complain,
  jsonLog,
  leaveStandardErrorBlocking,
  type LineOutput,
  type LineWriter,
  stderrLines,
} from "./standard-error.ts";
export { Cgroups } from "./processes/cgroups.ts";
export { NativeProcesses } from "./processes/processes.ts";
export { openFilesLimitForChildren } from "./processes/spawn.ts";
export { protectSelf, type Standing } from "./self-protection.ts";
export { processSignals } from "./signals.ts";
export { BufferPool } from "./streams/buffer-pool.ts";
