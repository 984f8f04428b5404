export type { CallOptions } from "./channel.ts";
export { GuestError, type GuestErrorParts, type GuestStatus } from "./errors.ts";
export type { ExecCommand, ExecResult, KeptCommand, SignalName } from "./exec/command.ts";
export type {
  AttachOptions,
  Attachment,
  KeepOptions,
  KeptEvent,
  KeptOptions,
  KeptPosition,
  ResumeOptions,
} from "./exec/keep.ts";
export type { KeptProcess } from "./exec/kept-process.ts";
export type { ExecProcess, WebStreams } from "./exec/process.ts";
export type { RunOptions, RunResult } from "./exec/run.ts";
export type { PathAttributes } from "./files/attributes.ts";
export type { GuestPath } from "./files/path.ts";
export type {
  LeftEntry,
  ListEntry,
  Listing,
  ListOptions,
  MkdirOptions,
  NewAttributes,
  RemoveOptions,
  RemoveResult,
  RenameOptions,
  SetAttributesOptions,
  SymlinkOptions,
} from "./files/tree.ts";
export type { FileContent } from "./files/read.ts";
export type { Health } from "./health.ts";
export type { FileSource, WriteFileOptions, WriteFileResult } from "./files/write.ts";
export {
  connect,
  type EndExecOptions,
  type GuestClient,
  type ReadRange,
  type SignalExecOptions,
  type StatPathOptions,
  type WaitForPortOptions,
} from "./guest-client.ts";
export {
  type BridgeOptions,
  type ConnectOptions,
  DEFAULT_PORT,
  DEFAULT_SERVER_NAME,
  type TcpOptions,
  type UnixSocketOptions,
} from "./link/link.ts";
export {
  type Dial,
  type DutiesOptions,
  type RestoredGuest,
  restoreDuties,
  type RestoreOptions,
  type RestoreOutcome,
  restoreSequence,
  type RestoreWarning,
} from "./restore.ts";
export type { Forwarding, ForwardOptions } from "./tunnel/forward.ts";
export type { GuestTunnel } from "./tunnel/tunnel.ts";
export type { StopResponse } from "../../shared/gen/svc/guest/v1alpha1/lifecycle_pb.ts";
export type { EndExecResponse, KeptExec } from "../../shared/gen/svc/guest/v1alpha1/exec_sessions_pb.ts";
export { FileType } from "../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
export { HookKind, type RunHookResponse } from "../../shared/gen/svc/guest/v1alpha1/hooks_pb.ts";
export type { RestoreDutiesResponse } from "../../shared/gen/svc/guest/v1alpha1/restore_pb.ts";
