/** gRPC status codes that the agent uses, by their canonical names (google.rpc.Code). */
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

/** Stable constants for the cause of an error (ErrorInfo.reason, AIP-193). Clients compare them: never rename one. */
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
  | "PROCESSES_UNREADABLE"
  | "PROCESS_NOT_PERMITTED"
  | "PROCESS_SIGNALS_UNSUPPORTED"
  | "PROCESS_UNKNOWN"
  | "SESSION_FROZEN"
  | "SHUTTING_DOWN"
  | "SIZE_MISMATCH"
  | "TOO_MANY_FILE_CALLS"
  | "TOO_MUCH_UNREAD"
  | "TOO_MANY_CONNECTIONS"
  | "TOO_MANY_DIRECTORIES"
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

/** Details of an error: path, errno, step, field. Never a secret. */
export type ErrorMetadata = Readonly<Record<string, string>>;

/** The error that the agent reports to clients. The message says what failed and what to do, and contains no secrets. */
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

/** The error for an invalid request field: INVALID_ARGUMENT with the field's name in the metadata. */
export function invalidField(field: string, problem: string): AgentError {
  return new AgentError("INVALID_ARGUMENT", "INVALID_FIELD", `${field} ${problem}`, { field });
}

/** The error for a message that is not allowed at this point of a call: INVALID_ARGUMENT, FRAME_ORDER. */
export function frameOrder(message: string): AgentError {
  return new AgentError("INVALID_ARGUMENT", "FRAME_ORDER", message);
}

/** The error (RESOURCE_EXHAUSTED) if too many calls watch or read at once. `advice` says what the client can do. */
export function tooManyWatchers(limit: number, advice: string): AgentError {
  const message = `the limit of ${limit} concurrent calls is reached; ${advice}`;
  return new AgentError("RESOURCE_EXHAUSTED", "TOO_MANY_WATCHERS", message, { limit: String(limit) });
}

/**
 * The status, reason and text with which an errno is reported to a client. `field` names the request field that caused
 * the error, if there is one.
 */
export type Failure = readonly [status: StatusName, reason: Reason, problem: string, field?: string | undefined];
