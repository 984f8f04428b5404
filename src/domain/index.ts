export { ActivityClock, type Attachment, IdleDeclarations, Stamps } from "./activity.ts";
export { Allowance, type AllowanceOptions, type Share } from "./allowance.ts";
export { commandCandidates } from "./command-lookup.ts";
export { type Command, type CommandDefaults, CommandStarter, type CommandStarterParts } from "./command-start.ts";
export {
  type Environment,
  type EnvironmentSources,
  type InheritedEnvironment,
  SessionEnvironment,
  WORKLOAD_SOCKET_VARIABLE,
} from "./environment.ts";
export {
  checkExecRequest,
  type ExecInput,
  ExecInputOrder,
  type ExecRequest,
  type TerminalRequest,
} from "./exec-frames.ts";
export {
  type ByteReceiver,
  type ByteSink,
  type ByteSource,
  type ChildProcess,
  exitCode,
  type Identity,
  type ProcessEnd,
  type Processes,
  type ProcessSet,
  SpawnError,
  type SpawnRequest,
  type SpawnStep,
  type StdioPlan,
} from "./ports/processes.ts";
export { AgentError, type ErrorMetadata, invalidField, type Reason, type StatusName } from "./errors.ts";
export { type FileAction, fileFailure, notARegularFile } from "./file-failure.ts";
export {
  checkFilePath,
  checkReadRequest,
  checkWriteRequest,
  type FileLocation,
  type ReadRequest,
  type WriteRequest,
} from "./file-requests.ts";
export type { CgroupFacts, EntropyFacts, GuestFacts, MemoryFacts } from "./guest-facts.ts";
export { nextTurn, STRINGS_A_TURN } from "./many.ts";
export { Mutex, unlessAborted } from "./mutex.ts";
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
  type FolderView,
  type NewFile,
  PathEscapes,
  type ReadableFile,
} from "./ports/files.ts";
export type { DegradedToken, RestoreReport, RestoreRequest } from "./restore-report.ts";
export { startFailure } from "./start-failure.ts";
export type { HookSpec, HooksSpec, ProcessSpec, ReadyCommandSpec } from "./specs.ts";
export { type ResolvedUser, resolveUser, userSyntaxProblem } from "./users.ts";
export * from "./limits.ts";
