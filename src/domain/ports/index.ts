export type { Accounts } from "./accounts.ts";
export type { WatchArrivals } from "./arrivals.ts";
export type { Clock } from "./clock.ts";
export type { EntropyDevice, Errno, Kernel, ProcessRandomness } from "./kernel.ts";
export {
  type FileAttributes,
  type FileOwner,
  type FilePath,
  type FileStep,
  type FileSystem,
  FileSystemError,
  type FileTree,
  type FileType,
  type FolderView,
  type NewFile,
  PathEscapes,
  type ReadableFile,
} from "./files.ts";
export type { Log, LogFields, LogLevel } from "./log.ts";
export {
  type ChildProcess,
  type Identity,
  type ProcessEnd,
  type Processes,
  type ProcessSet,
  SpawnError,
  type SpawnRequest,
  type SpawnStep,
  type StdioPlan,
} from "./processes.ts";
export type { Signals } from "./signals.ts";
export type { ByteReceiver, ByteSink, ByteSource } from "./streams.ts";
export type { Timers } from "./timers.ts";
