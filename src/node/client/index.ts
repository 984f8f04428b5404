export type { CallOptions } from "./grpc/channel.ts";
export { ERROR_CODES, type ErrorCode } from "./errors/error-codes.ts";
export type { AgentReason } from "./errors/agent-reasons.ts";
export {
  GuestError,
  type GuestErrorCode,
  type GuestErrorParts,
  type GuestStatus,
  isLost as isConnectionLost,
} from "./errors/errors.ts";
export { isTransient } from "./errors/transient.ts";
export { printable } from "../../shared/printable.ts";
export type { CommandOptions, CommandResult, SignalName, TerminalOptions } from "./commands/command.ts";
export { signalNumber } from "./commands/command.ts";
export type {
  Commands,
  EndCommandOptions,
  KeptStartOptions,
  SignalCommandOptions,
  StartOptions,
} from "./commands/commands.ts";
export type {
  AttachOptions,
  Attachment,
  KeepOptions,
  KeptEvent,
  KeptOptions,
  KeptPosition,
  ResumeOptions,
  WorkloadOutputOptions,
} from "./commands/keep.ts";
export type { KeptProcess, WorkloadOutput } from "./commands/kept-process.ts";
export type { GuestProcess, LinesOptions, WebStreams } from "./commands/process.ts";
export type { OutputReadable } from "./commands/streams.ts";
export { CommandError, type RunResult } from "./commands/command-error.ts";
export type { RunOptions, RunSettings } from "./commands/run.ts";
export type { OutputListeners, Stdio, StdioOption, StdioOptions } from "./commands/stdio.ts";
export type {
  Files,
  MkdirOptions,
  NewAttributes,
  ReaddirOptions,
  ReadlinkOptions,
  RenameOptions,
  RmOptions,
  SetAttributesOptions,
  SymlinkOptions,
} from "./files/files.ts";
export type { DirectoryEntry, Listing, OpendirOptions, ReadEntry, UnreadEntry } from "./files/listing.ts";
export type { GuestPath, PlaceOptions } from "./files/path.ts";
export type { CopyEntry, DirectoryCopy, DownloadOptions, LocalPath, UploadOptions } from "./files/directory-copy.ts";
export type { GuestReadStream, ReadFileOptions, ReadOptions } from "./files/read.ts";
export type { ReadTreeOptions, TreeReading } from "./files/read-tree.ts";
export type { FileAttributes, FileStat, FileType } from "./files/stat.ts";
export type { Hole, Piece } from "../tar/index.ts";
export type { DirectoryEvent, WatchOptions } from "./files/watch.ts";
export type { LeftEntry, NewTreeEntry, TreeEntries, TreeEntry, TreeEntryType, TreeResult } from "./files/tree-entry.ts";
export type { WriteTreeOptions } from "./files/write-tree.ts";
export type { FileSource, WriteFileOptions, WriteFileResult } from "./files/write.ts";
export { connect, type GuestClient, type WatchUsageOptions } from "./guest-client.ts";
export {
  type BridgeOptions,
  type ConnectOptions,
  DEFAULT_PORT,
  DEFAULT_SERVER_NAME,
  type TcpOptions,
  type UnixSocketOptions,
} from "./grpc/link/link.ts";
export {
  finishRestore,
  type Dial,
  type DoneDuties,
  type DutiesOptions,
  type RestoredGuest,
  restoreDuties,
  type RestoreOptions,
  type RestoreOutcome,
  hasRefusedSpec,
  restoreSequence,
  type RestoreWarning,
} from "./lifecycle/restore.ts";
export type {
  HooksSpec,
  HookSpec,
  KeepOutputSpec,
  ProcessOutputSpec,
  ProcessSpec,
  ReadyCommandSpec,
} from "./lifecycle/specs.ts";
export { CONNECTION_CHANNEL, type ConnectionEvent } from "./grpc/tracing.ts";
export type { Forwarding, ForwardOptions } from "./ports/forward.ts";
export type { Ports, WaitForPortOptions } from "./ports/ports.ts";
export type { DutiesCallOptions, HookKind, HookOptions, Snapshots } from "./lifecycle/snapshots.ts";
export type { GuestTunnel } from "./ports/tunnel.ts";
export { type LabelledUsage, usageMetrics } from "./lifecycle/usage-metrics.ts";
export type {
  CommandUsage,
  DutiesResult,
  EndedCommand,
  GuestUsage,
  Health,
  HookResult,
  CommandInfo,
  ListeningPort,
  PortChanges,
  PortList,
  PortWait,
  ProcessList,
  SessionProcess,
  StopResult,
} from "./lifecycle/messages.ts";
export type { CommandKind, PortScope, UsageScope } from "./plain.ts";
