import { fromBinary } from "@bufbuild/protobuf";
import { protoCamelCase } from "@bufbuild/protobuf/reflect";
import { BinaryReader } from "@bufbuild/protobuf/wire";
import { AnySchema } from "@bufbuild/protobuf/wkt";
import { type ServiceError, status } from "@grpc/grpc-js";
import { ErrorInfoSchema } from "../../shared/gen/google/rpc/error_details_pb.ts";
import { type ErrorCode, nextStepFor } from "./error-codes.ts";
import {
  type Cause,
  causeOf,
  isClosedUnready,
  isNoAnswer,
  isRefusedConnection,
  isUnconnected,
  isUnsent,
  withoutNoise,
} from "./grpc-texts.ts";

/** A gRPC status by its canonical name. Never OK. */
export type GuestStatus = Exclude<keyof typeof status, "OK">;

/** What is known of a failed call. */
export interface GuestErrorParts {
  readonly status: GuestStatus;
  readonly message: string;
  /** Default: the reason, or else the status. */
  readonly code?: ErrorCode | undefined;
  readonly reason?: string | undefined;
  readonly metadata?: Readonly<Record<string, string>> | undefined;
  readonly cause?: unknown;
  /** Default: by the reason. */
  readonly retryable?: boolean | undefined;
}

/** The agent's reasons for refusing a call before it executes anything, which do not concern the call itself. */
const REFUSED_FOR_NOW: ReadonlySet<string> = new Set([
  "EXEC_RESOURCE_LIMIT",
  "EXEC_TEXT_BUSY",
  "SESSION_FROZEN",
  "SHUTTING_DOWN",
  "TOO_MANY_CONNECTIONS",
  "TOO_MANY_EXECS",
  "TOO_MANY_KEPT_BYTES",
  "TOO_MANY_KEPT_EXECS",
  "TOO_MANY_TUNNELS",
  "TOO_MANY_WATCHERS",
]);

/** The only error that this client throws: why a call failed. */
export class GuestError extends Error {
  override readonly name = "GuestError";
  /** Canonical name of the gRPC status. */
  readonly status: GuestStatus;
  /** Stable constant of the cause: the agent's `reason`, one of ERROR_CODES, or the status. */
  readonly code: string;
  /** The agent's stable constant for the cause, such as "EXEC_NOT_FOUND"; undefined when the agent never answered. */
  readonly reason: string | undefined;
  /** What the error is about: path, errno, step, field. */
  readonly metadata: Readonly<Record<string, string>>;
  /** The option of the call that it is about, such as "keep.bufferBytes"; undefined: none of them. */
  readonly option: string | undefined;
  /**
   * Nothing was executed in the guest, and the call itself is not at fault: the same call may be repeated, later or on
   * another sandbox, without anything happening twice. True where the call was never sent, because there was no
   * connection, and where the agent refused it before it began: it shuts down, is frozen, or has too many of its kind.
   * False for everything else, above all for a connection that was lost: the call may have taken effect. Whether a new
   * attempt can succeed on this connection's address is another question.
   */
  readonly retryable: boolean;
  /** What to do about it, in a few words; undefined: the message says everything. */
  readonly nextStep: string | undefined;
  /** The message with its field's own name. */
  readonly #message: string;

  constructor(parts: GuestErrorParts) {
    const { reason, metadata: { field } = {} } = parts;
    // An agent's error has its schema's name for it.
    const option = field && reason !== undefined ? optionOf(field) : field;
    super(renamed(parts.message, field, option), parts.cause === undefined ? undefined : { cause: parts.cause });
    this.#message = parts.message;
    this.status = parts.status;
    this.code = parts.code ?? parts.reason ?? parts.status;
    this.reason = parts.reason;
    this.metadata = parts.metadata ?? {};
    this.option = option;
    this.retryable = parts.retryable ?? (reason !== undefined && REFUSED_FOR_NOW.has(reason));
    this.nextStep = nextStepFor(this.code);
  }

  /** The same error of a call that had begun: what it was to execute may have been executed. */
  ofBegunCall(): GuestError {
    if (!this.retryable) return this;
    const { reason, metadata, cause } = this;
    const parts = {
      status: this.status,
      code: this.code as ErrorCode,
      message: this.#message,
      reason,
      metadata,
      cause,
    };
    return new GuestError({ ...parts, retryable: false });
  }

  /** The message with another name for `option`, as a command line has. */
  messageWith(name: string): string {
    return renamed(this.#message, this.metadata["field"], name);
  }
}

/** The option of a field that an agent's error names: of `start.keep.buffer_bytes`, `keep.bufferBytes`. */
function optionOf(field: string): string {
  const names = field.split(".");
  const ofFrame = names.length > 1 && (names[0] === "start" || names[0] === "attach");
  const option = names
    .slice(ofFrame ? 1 : 0)
    .map(protoCamelCase)
    .join(".");
  return option === "createParents" ? "parents" : option;
}

/** A text with the name of its error's field in other words: at its beginning, or else the last. */
function renamed(text: string, from = "", to = from): string {
  if (from === "" || from === to) return text;
  const at = text.startsWith(from) ? 0 : text.lastIndexOf(from);
  return at < 0 ? text : text.slice(0, at) + to + text.slice(at + from.length);
}

/** Whether a call failed with its connection. The agent's own UNAVAILABLE, sent while it shuts down, has a reason. */
export function isLost(error: unknown): error is GuestError {
  return error instanceof GuestError && error.status === "UNAVAILABLE" && error.reason === undefined;
}

/** The GuestError for a cause that this library finds itself. */
export function failure(under: GuestStatus, code: ErrorCode, message: string, cause?: unknown): GuestError {
  return new GuestError({ status: under, code, message, cause });
}

/** The GuestError for an option or argument that cannot be sent or used; `field` is its name, if it is one. */
export function invalidOption(field: string | undefined, message: string, cause?: unknown): GuestError {
  const metadata = field === undefined ? {} : { field };
  return new GuestError({ status: "INVALID_ARGUMENT", code: "INVALID_ARGUMENT", message, metadata, cause });
}

/** The GuestError for an answer that is not what the schema promises. */
export function unreadable(problem: string, cause?: unknown): GuestError {
  return failure("INTERNAL", "ANSWER_UNREADABLE", `the agent's answer ${problem}`, cause);
}

/**
 * The GuestError for a message that grpc-js cannot decompress; undefined: a different error. That has neither code nor
 * details (ResolvingCall of 1.14 takes them from whatever was thrown).
 */
export function uncompressed(error: ServiceError): GuestError | undefined {
  if (typeof (error as Partial<ServiceError>).details === "string") return undefined;
  return unreadable("cannot be read: it is compressed, in a way that this client does not know", error);
}

/** The failed call, and what its connection knows about it. */
export interface FailedCall {
  readonly method: string;
  readonly service: string;
  readonly signal: AbortSignal | undefined;
  readonly agentVersion: string | undefined;
  /** Why there is no connection, if the link knows. */
  readonly linkFailure: Cause | undefined;
  /** Time after which no connection was ready; undefined: a different error. */
  readonly connectTimeoutMs?: number | undefined;
}

/** The GuestError for a call that failed with a gRPC status. If the signal was aborted, the reason is its abort. */
export function guestError(error: ServiceError, call: FailedCall): GuestError {
  if (call.signal?.aborted === true) return abortedError(call.signal);
  const details = detailsOf(error);
  const name = statusName(error.code);
  const retryable = isUnsent(error) ? true : undefined;
  const made = (under: GuestStatus, cause: Partial<Cause> & Pick<Cause, "message">): GuestError =>
    new GuestError({ status: under, ...details, ...cause, cause: error, retryable });
  if (call.connectTimeoutMs !== undefined) {
    const because = call.linkFailure === undefined ? "" : `: ${call.linkFailure.message}`;
    const message = `no connection within ${call.connectTimeoutMs} ms${because}`;
    return made("UNAVAILABLE", { code: "CONNECT_TIMED_OUT", message });
  }
  const missing = missingMethod(name, details, error, call);
  if (missing !== undefined) return made(name, { code: "AGENT_TOO_OLD", message: missing });
  if (details?.message !== undefined) return made(name, { message: details.message });
  const cause = connectionCause(name, error, call);
  return made(isRefusal(cause.code) ? "PERMISSION_DENIED" : name, cause);
}

/** The GuestError for a call that its caller aborted. */
export function abortedError(signal: AbortSignal): GuestError {
  return failure("CANCELLED", "CALL_ABORTED", "the call was aborted by its caller", signal.reason);
}

function detailsOf(error: ServiceError): ErrorDetails | undefined {
  const [value] = error.metadata?.get("grpc-status-details-bin") ?? [];
  return Buffer.isBuffer(value) ? readErrorDetails(value) : undefined;
}

function statusName(code: number): GuestStatus {
  const name = status[code];
  return name === undefined || name === "OK" ? "UNKNOWN" : (name as GuestStatus);
}

/** The error of an agent that is older than this client, or of another server without that method. */
function missingMethod(
  name: GuestStatus,
  details: ErrorDetails | undefined,
  error: ServiceError,
  { method, service, agentVersion }: FailedCall,
): string | undefined {
  if (name !== "UNIMPLEMENTED" || (details?.reason ?? name) !== name || isNoAnswer(error)) return undefined;
  const since = SINCE[method] ?? SINCE[service];
  const known = agentVersion === undefined ? "" : ` (version ${agentVersion})`;
  if (since !== undefined) return `this agent${known} is older than ${since}, the first version with ${method}`;
  return `the agent${known} has no method ${method}`;
}

/** Versions of the agent that brought whole services, and methods of older ones. */
const SINCE: Readonly<Record<string, string>> = {
  "svc.guest.v1alpha1.ExecSessions": "0.2.0",
  "svc.guest.v1alpha1.FileTree": "0.2.0",
  "svc.guest.v1alpha1.Lifecycle": "0.2.0",
  "svc.guest.v1alpha1.Tunnel": "0.2.0",
  "svc.guest.v1alpha1.UsageService": "0.3.0",
  ListPorts: "0.3.0",
  Watch: "0.4.0",
  ReadTree: "0.3.0",
  WatchPorts: "0.3.0",
  WriteTree: "0.3.0",
};

function connectionCause(
  name: GuestStatus,
  error: ServiceError,
  { linkFailure }: FailedCall,
): Partial<Cause> & Pick<Cause, "message"> {
  if (linkFailure !== undefined && isUnconnected(error))
    return { ...linkFailure, message: `no connection before the deadline: ${linkFailure.message}` };
  if (isRefusedConnection(error)) return linkFailure ?? { code: "CLIENT_CERTIFICATE_REFUSED", message: REFUSED };
  const message = withoutNoise(error.details);
  const cause = causeOf(error.details);
  if (cause !== undefined && isRefusal(cause.code)) return cause;
  return (name === "UNAVAILABLE" ? (linkFailure ?? cause) : undefined) ?? { message };
}

function isRefusal(code: ErrorCode | undefined): boolean {
  return code === "CLIENT_CERTIFICATE_REFUSED" || code === "CLIENT_CERTIFICATE_EXPIRED";
}

const REFUSED = "the agent refused the connection, usually because of the client certificate";

/** A refused connection is explained by the agent's answer; a hanging one may stay silent past the deadline. */
const REFUSAL_LIMIT_MS = 3_000;
export const SILENCE_LIMIT_MS = 300;

/** Causes that no later attempt mends. A guest may be about to accept this client's authority, and to be restored. */
const PERMANENT: ReadonlySet<string> = new Set<ErrorCode>([
  // A restored guest has its listener from its first instruction on.
  "CONNECTION_REFUSED",
  "NOT_AN_AGENT",
  "CLIENT_CERTIFICATE_EXPIRED",
  "CLIENT_CERTIFICATE_TOO_LONG",
  "SERVER_NAME_MISMATCH",
  "SERVER_CERTIFICATE_EXPIRED",
  "SERVER_CERTIFICATE_NOT_YET_VALID",
  "SERVER_CERTIFICATE_UNTRUSTED",
]);

/** Whether a later attempt may connect. */
export function mayConnect(error: unknown): boolean {
  if (!(error instanceof GuestError) || PERMANENT.has(error.code)) return false;
  return error.status === "UNAVAILABLE" || (error.status === "PERMISSION_DENIED" && error.reason === undefined);
}

/** Milliseconds for finding out why a call has no connection; undefined: its error says why, or it had one. */
export function explanationLimitMs(error: ServiceError): number | undefined {
  if (isUnconnected(error)) return SILENCE_LIMIT_MS;
  return isRefusedConnection(error) || isClosedUnready(error) ? REFUSAL_LIMIT_MS : undefined;
}

const ERROR_INFO_TYPE = "type.googleapis.com/google.rpc.ErrorInfo";

/** Content of a google.rpc.Status. */
interface ErrorDetails {
  /** The exact message; grpc-message may have lost characters in its encoding. */
  readonly message: string | undefined;
  /** Undefined without an ErrorInfo. */
  readonly reason: string | undefined;
  readonly metadata: Readonly<Record<string, string>>;
}

/** Reads grpc-status-details-bin, a google.rpc.Status: message = 2, details = 3. Undefined when it is malformed. */
export function readErrorDetails(bytes: Uint8Array): ErrorDetails | undefined {
  let message: string | undefined;
  let reason: string | undefined;
  let metadata: Readonly<Record<string, string>> = {};
  try {
    const reader = new BinaryReader(bytes);
    while (reader.pos < reader.len) {
      const [field, wireType] = reader.tag();
      if (field === 2) {
        message = reader.string();
      } else if (field === 3) {
        const detail = fromBinary(AnySchema, reader.bytes());
        if (detail.typeUrl === ERROR_INFO_TYPE) ({ reason, metadata } = fromBinary(ErrorInfoSchema, detail.value));
      } else {
        reader.skip(wireType, field);
      }
    }
    return { message, reason, metadata };
  } catch {
    return undefined;
  }
}
