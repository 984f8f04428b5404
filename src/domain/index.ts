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
export { exitCode } from "./exit-status.ts";
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
export * from "./limits.ts";
export { nextTurn, STRINGS_A_TURN } from "./many.ts";
export { Mutex, unlessAborted } from "./mutex.ts";
export * from "./ports/index.ts";
export type { DegradedToken, RestoreReport, RestoreRequest } from "./restore-report.ts";
export { startFailure } from "./start-failure.ts";
export type { HookSpec, HooksSpec, ProcessSpec, ReadyCommandSpec } from "./specs.ts";
export { type ResolvedUser, resolveUser, userSyntaxProblem } from "./users.ts";
