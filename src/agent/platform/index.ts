export { fileAccounts } from "./accounts.ts";
export { arrivalsWatcher } from "./arrivals.ts";
export { surviveUncaughtErrors } from "./uncaught-errors.ts";
export { guestClock, nodeTimers } from "./clock.ts";
export { consoleOutput } from "./console-output.ts";
export { MemoryKeeper } from "./memory.ts";
export { guestKernel, processRandomness } from "./kernel.ts";
export { type Inheritance, takeInheritance } from "./inherited-environment.ts";
export { LauncherChannel } from "./launcher-channel.ts";
export {
  printError,
  errorLine,
  jsonLog,
  leaveStandardErrorBlocking,
  logWarnings,
  stderrLines,
} from "./standard-error.ts";
export { Cgroups } from "./processes/cgroups.ts";
export { NativeProcesses, type ChildSettings } from "./processes/processes.ts";
export { SessionCgroup } from "./processes/session-cgroup.ts";
export { SessionMemory } from "./processes/session-memory.ts";
export { openFilesLimitForChildren } from "./processes/spawn.ts";
export { ProgramPages } from "./program-pages.ts";
export { protectSelf } from "./self-protection.ts";
export { processSignals } from "./signals.ts";
export { STREAM_BUFFERS } from "./streams/source.ts";
