export { ActivityClock, type Attachment, IdleDeclarations, Stamps } from "./activity.ts";
export { Allowance, type AllowanceOptions, type Share } from "./allowance.ts";
export { BufferPool, type BufferPoolSizes, type LentBuffer } from "./buffer-pool.ts";
export {
  type ByteReceiver,
  type ByteSink,
  type ByteSource,
  type ByteStore,
  type ChildProcess,
  type Identity,
  pack,
  type ProcessEnd,
  type Processes,
  type ProcessSet,
  type SpawnBlock,
  SpawnError,
  type SpawnStep,
  type StdioPlan,
} from "./ports/processes.ts";
export { AgentError, errnoOf, frameOrder, invalidField, messageOf, type Reason, type StatusName } from "./errors.ts";
export type { CgroupFacts, EntropyFacts, GuestFacts, MemoryFacts } from "./guest-facts.ts";
export { Mutex, nextTurn, STRINGS_A_TURN, unlessAborted } from "./mutex.ts";
export type {
  Accounts,
  Clock,
  EntropyDevice,
  Errno,
  Kernel,
  Log,
  LogFields,
  LogLevel,
  ProcessRandomness,
  Signals,
  Timers,
  WatchArrivals,
} from "./ports/system.ts";
export {
  type FileAttributes,
  type FileOwner,
  type FilePath,
  type FileStep,
  type FileSystem,
  FileSystemError,
  type FileTree,
  type FileType,
  type NewFile,
  type NewFileOptions,
  PathEscapes,
  type ReadableFile,
} from "./ports/files.ts";
export type { HookSpec, HooksSpec, ProcessSpec, ReadyCommandSpec } from "./specs.ts";
export { SparseFile } from "./sparse-file.ts";
export { wrap } from "./text.ts";
export * from "./limits.ts";
