export { ActivityClock, type Attachment, type Stamp, Stamps } from "./activity.ts";
export { Allowance, type AllowanceOptions, type Caller, type Share } from "./allowance.ts";
export { CallPlaces } from "./call-places.ts";
export { Budget } from "./budget.ts";
export { BufferPool, type BufferPoolSizes, type LentBuffer } from "./buffer-pool.ts";
export {
  type ByteReceiver,
  type ByteSink,
  type ByteSource,
  type ByteStore,
  type ChildProcess,
  type FreezeProblem,
  type Identity,
  pack,
  type PendingProcess,
  type ProcessEnd,
  type Processes,
  type ProcessSet,
  type SessionGroup,
  type SpawnBlock,
  SpawnError,
  type SpawnStep,
  type StdioPlan,
} from "./ports/processes.ts";
export { AgentError, frameOrder, invalidField, type Reason, type StatusName } from "./errors.ts";
export type { CgroupFacts, EntropyFacts, GuestFacts, MemoryFacts } from "./guest-facts.ts";
export { Mutex, nextTurn, STRINGS_A_TURN, unlessAborted } from "./mutex.ts";
export { SocketError, type SocketReceiver, type Sockets, type StreamSocket } from "./ports/sockets.ts";
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
  type FileStep,
  type FileSystem,
  FileSystemError,
  FileSystemHung,
  type FileTree,
  type Mount,
  type NewFile,
  type NewFileOptions,
  PathEscapes,
  type ReadableFile,
  operationReturned,
} from "./ports/files.ts";
export type {
  FolderEntry,
  FolderIdentity,
  FolderPage,
  FolderPosition,
  OpenEntry,
  OpenFolder,
  Removable,
} from "./ports/folders.ts";
export { type Failure, fileFailure, notAFolder, notARegularFile } from "./file-failure.ts";
export { checkAttributes, checkFilePath, type FileLocation, inTree, pathText, wholePath } from "./file-location.ts";
export {
  attributesOf,
  type DividedPath,
  folderOf,
  heirOf,
  makeFolder,
  ownerOf,
  Parents,
  splitPath,
} from "./new-folders.ts";
export type { FileAttributes, FileOwner, FilePath, FileType } from "./ports/file-attributes.ts";
export type { CommandSpec, HooksSpec, ProcessSpec, ReadyCommandSpec, TlsMaterial } from "./specs.ts";
export { SessionLife } from "./session-life.ts";
export * from "./limits.ts";
