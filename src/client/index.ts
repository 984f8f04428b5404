export type { CallOptions } from "./channel.ts";
export { connect, type ConnectOptions, DEFAULT_SERVER_NAME } from "./connect.ts";
export { GuestError, type GuestStatus } from "./errors.ts";
export type { ExecCommand, ExecProcess, ExecResult, RunResult } from "./exec/index.ts";
export type { WriteFileOptions, WriteFileResult } from "./files.ts";
export type { GuestClient } from "./guest-client.ts";
export {
  type DutiesOptions,
  restoreDuties,
  type RestoreOptions,
  type RestoreOutcome,
  restoreSequence,
} from "./restore.ts";
