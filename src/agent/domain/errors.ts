/** The gRPC status codes that the agent answers with, by their canonical names (google.rpc.Code). */
export type StatusName =
  | "CANCELLED"
  | "INVALID_ARGUMENT"
  | "DEADLINE_EXCEEDED"
  | "NOT_FOUND"
  | "ALREADY_EXISTS"
  | "ABORTED"
  | "PERMISSION_DENIED"
  | "RESOURCE_EXHAUSTED"
  | "FAILED_PRECONDITION"
  | "OUT_OF_RANGE"
  | "UNIMPLEMENTED"
  | "INTERNAL"
  | "UNAVAILABLE"
  | "DATA_LOSS"
  | "UNAUTHENTICATED";

/** Stable constants that name an error's cause (ErrorInfo.reason, AIP-193). Clients switch on them: never rename. */
export type Reason =
  | "ALREADY_EXISTS"
  | "AUTHORITY_REPLACED"
  | "CANCELLED"
  | "CHECKSUM_MISMATCH"
  | "CROSS_DEVICE"
  | "DEADLINE_EXCEEDED"
  | "EXEC_ARGS_TOO_LONG"
  | "EXEC_BAD_CWD"
  | "EXEC_BAD_FORMAT"
  | "EXEC_BAD_USER"
  | "EXEC_ENDED"
  | "EXEC_NAME_IN_USE"
  | "EXEC_NOT_ENDED"
  | "EXEC_NOT_FOUND"
  | "EXEC_OFFSET_PAST_END"
  | "EXEC_PERMISSION_DENIED"
  | "EXEC_RESOURCE_LIMIT"
  | "EXEC_SETUP_FAILED"
  | "EXEC_TAKEN_OVER"
  | "EXEC_TEXT_BUSY"
  | "EXEC_UNKNOWN"
  | "FILE_ERROR"
  | "FILE_SYSTEM_HUNG"
  | "FOLDER_NOT_EMPTY"
  | "FRAME_ORDER"
  | "INTERNAL"
  | "INVALID_FIELD"
  | "MALFORMED_MESSAGE"
  | "MESSAGE_TOO_LARGE"
  | "MOUNT_POINT"
  | "NOT_A_FOLDER"
  | "NOT_A_REGULAR_FILE"
  | "NO_SPACE"
  | "PATH_ESCAPES"
  | "PATH_NOT_FOUND"
  | "PATH_PERMISSION_DENIED"
  | "PORTS_NOT_KNOWN"
  | "PORT_NOT_LISTENING"
  | "PORT_REFUSED"
  | "PORT_RESET"
  | "PORT_UNREACHABLE"
  | "SESSION_FROZEN"
  | "SHUTTING_DOWN"
  | "SIZE_MISMATCH"
  | "TOO_MANY_FILE_CALLS"
  | "TOO_MUCH_UNREAD"
  | "TOO_MANY_CONNECTIONS"
  | "TOO_MANY_EXECS"
  | "TOO_MANY_KEPT_BYTES"
  | "TOO_MANY_KEPT_EXECS"
  | "TOO_MANY_TUNNELS"
  | "SERVICE_NOT_FOUND"
  | "TOO_MANY_WATCHERS"
  | "UNAUTHENTICATED"
  | "UNIMPLEMENTED"
  | "UNSUPPORTED_COMPRESSION"
  | "WORKLOAD_OUTPUT_NOT_KEPT";

/** What an error was about: path, errno, step, field. Never a secret. */
export type ErrorMetadata = Readonly<Record<string, string>>;

/** The agent's only error. Its message goes to the client: it says what was wrong and what to do, without secrets. */
export class AgentError extends Error {
  override readonly name = "AgentError";
  readonly status: StatusName;
  readonly reason: Reason;
  readonly metadata: ErrorMetadata;

  constructor(status: StatusName, reason: Reason, message: string, metadata: ErrorMetadata = {}, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.status = status;
    this.reason = reason;
    this.metadata = metadata;
  }
}

/** A request field that is malformed: INVALID_ARGUMENT with the field's name in the metadata. */
export function invalidField(field: string, problem: string): AgentError {
  return new AgentError("INVALID_ARGUMENT", "INVALID_FIELD", `${field} ${problem}`, { field });
}

/** The error for a message that is out of order. */
export function frameOrder(message: string): AgentError {
  return new AgentError("INVALID_ARGUMENT", "FRAME_ORDER", message);
}

/** The error for one call more that watches or reads than there may be at once; `advice` is what to do. */
export function tooManyWatchers(limit: number, advice: string): AgentError {
  const message = `${limit} calls do this already; ${advice}`;
  return new AgentError("RESOURCE_EXHAUSTED", "TOO_MANY_WATCHERS", message, { limit: String(limit) });
}

/** What an errno of the kernel means to a client; `field` is the one of the request that the problem names. */
export type Failure = readonly [status: StatusName, reason: Reason, problem: string, field?: string | undefined];
