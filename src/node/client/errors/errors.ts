import { fromBinary } from "@bufbuild/protobuf";
import { protoCamelCase } from "@bufbuild/protobuf/reflect";
import { BinaryReader } from "@bufbuild/protobuf/wire";
import { AnySchema } from "@bufbuild/protobuf/wkt";
import { type ServiceError, status } from "@grpc/grpc-js";
import { ErrorInfoSchema } from "../../../shared/gen/google/rpc/error_details_pb.ts";
import type { AgentReason } from "./agent-reasons.ts";
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
} from "../grpc/grpc-texts.ts";
import { nameWithCode } from "../../../shared/errors.ts";
import { printable, printableCause } from "../../../shared/printable.ts";

/** Canonical name of a gRPC status other than OK. */
export type GuestStatus = Exclude<keyof typeof status, "OK">;

/**
 * Any string. If a union of string literals contained `string` itself, editors would no longer offer the literals as
 * completions; with this type they do.
 */
type Unknown = string & Record<never, never>;

/** Code of an error. A newer agent may send codes that are not listed here. */
export type GuestErrorCode = ErrorCode | AgentReason | GuestStatus | Unknown;

/** Parameters of GuestError's constructor. */
export interface GuestErrorParts {
  readonly status: GuestStatus;
  readonly message: string;
  /** Code of the error. Default: the reason, or the status if there is no reason. */
  readonly code?: ErrorCode | undefined;
  readonly reason?: string | undefined;
  readonly metadata?: Readonly<Record<string, string>> | undefined;
  readonly cause?: unknown;
  /** Whether the call can be repeated safely. Default: true if REFUSED_FOR_NOW contains the reason. */
  readonly retryable?: boolean | undefined;
}

/** Reasons with which the agent refuses a call before it has executed anything. The call itself is valid. */
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

/**
 * Why a call failed. Every error of this library is a GuestError. Characters that control a terminal are escaped in its
 * message.
 */
export class GuestError extends Error {
  /** "GuestError"; "AbortError" if the caller's signal was aborted, as in Node; "CommandError" for a CommandError. */
  override readonly name: string;
  /** Canonical name of the gRPC status. */
  readonly status: GuestStatus;
  /** Stable code of the cause: the agent's `reason`, one of ERROR_CODES, or the status. */
  readonly code: GuestErrorCode;
  /** The agent's stable code of the cause, such as "PATH_NOT_FOUND"; undefined if the error did not come from the agent. */
  readonly reason: AgentReason | Unknown | undefined;
  /** Details of the error, such as `path`, `errno` and `field`: a plain object of strings. */
  readonly metadata: Readonly<Record<string, string>>;
  /** Name of the invalid option, such as "keep.bufferBytes"; undefined if the error is not about an option. */
  readonly option: string | undefined;
  /**
   * Whether the same call can be repeated, later or on another sandbox, without anything happening twice. True if the
   * call itself is valid and the guest has executed nothing: because there was no connection over which the call could
   * be sent, or because the agent refused it before executing anything (it is shutting down, is frozen, or has reached
   * a limit). False in all other cases, in particular after a lost connection, because the call may have taken effect.
   * `retryable` does not say whether a retry would succeed. `isTransient` says whether reconnecting may help.
   */
  readonly retryable: boolean;
  /** Short advice for the user; undefined if the message says everything. */
  readonly nextStep: string | undefined;
  /** The original message, which names the field as the protobuf schema does. */
  readonly #message: string;

  constructor(parts: GuestErrorParts) {
    const { reason, metadata: { field } = {} } = parts;
    // The agent names a field as the protobuf schema does; convert that name to the name of the option.
    const option = field && reason !== undefined ? optionOf(field) : field;
    super(
      printable(renamed(parts.message, field, option)),
      parts.cause === undefined ? undefined : { cause: printableCause(parts.cause) },
    );
    this.#message = parts.message;
    this.status = parts.status;
    this.code = parts.code ?? parts.reason ?? parts.status;
    this.name = nameWithCode(this.code, "GuestError");
    this.reason = parts.reason;
    this.metadata = parts.metadata ?? {};
    this.option = option;
    this.retryable = parts.retryable ?? (reason !== undefined && REFUSED_FOR_NOW.has(reason));
    this.nextStep = nextStepFor(this.code);
  }

  /**
   * Returns this error, but with `retryable` false, for a call that had already begun: the guest may have executed part
   * of the call.
   */
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
    const error = new GuestError({ ...parts, retryable: false });
    if (this.stack !== undefined) error.stack = this.stack;
    return error;
  }

  /**
   * Returns the message with another name in place of `option`, such as the name that the option has on the command
   * line. If `: true` follows the option's name, removes it, because a flag of a command line has no value.
   */
  messageWith(name: string): string {
    const { field } = this.metadata;
    return printable(renamed(renamed(this.#message, `${field}: true`, field), field, name));
  }
}

/** Converts a schema field to an option name: `start.keep.buffer_bytes` to `keep.bufferBytes`. */
function optionOf(field: string): string {
  const names = field.split(".");
  const ofFrame = names.length > 1 && (names[0] === "start" || names[0] === "attach");
  const option = names
    .slice(ofFrame ? 1 : 0)
    .map(protoCamelCase)
    .join(".");
  return option === "createParents" ? "parents" : option;
}

/**
 * Replaces a field name in an error text. If the text does not begin with the name, replaces the name's last
 * occurrence.
 */
function renamed(text: string, from = "", to = from): string {
  if (from === "" || from === to) return text;
  const at = text.startsWith(from) ? 0 : text.lastIndexOf(from);
  return at < 0 ? text : text.slice(0, at) + to + text.slice(at + from.length);
}

/**
 * Whether a call failed because its connection was lost or could not be made. False for SHUTTING_DOWN, with which an
 * agent refuses calls while it stops in order: its connection still works. To reconnect after both, use `isTransient`.
 */
export function isLost(error: unknown): error is LostConnection {
  return error instanceof GuestError && error.status === "UNAVAILABLE" && error.reason === undefined;
}

/** Narrower than GuestError: otherwise TypeScript would infer `never` for a GuestError where `isLost` is false. */
type LostConnection = GuestError & { readonly status: "UNAVAILABLE"; readonly reason: undefined };

/** Creates the GuestError for an error that this library itself detects. */
export function failure(under: GuestStatus, code: ErrorCode, message: string, cause?: unknown): GuestError {
  return new GuestError({ status: under, code, message, cause });
}

/** Creates the GuestError for an invalid option or argument. `field` is its name, if it has one. */
export function invalidOption(field: string | undefined, message: string, cause?: unknown): GuestError {
  const metadata = field === undefined ? {} : { field };
  return new GuestError({ status: "INVALID_ARGUMENT", code: "INVALID_ARGUMENT", message, metadata, cause });
}

/** Creates the GuestError for an answer that violates the schema. */
export function unreadable(problem: string, cause?: unknown): GuestError {
  return failure("INTERNAL", "ANSWER_UNREADABLE", `the agent's answer ${problem}`, cause);
}

/**
 * Returns a GuestError if the error says that grpc-js failed to decompress a message; undefined for other errors. Only
 * this error of grpc-js has no `details`: grpc-js makes it from an exception, which has no such field (ResolvingCall of
 * 1.14).
 */
export function uncompressed(error: ServiceError): GuestError | undefined {
  if (typeof (error as Partial<ServiceError>).details === "string") return undefined;
  return unreadable("cannot be read, because this client does not support its compression", error);
}

/** The failed call, and the state of its connection. */
export interface FailedCall {
  readonly method: string;
  readonly service: string;
  readonly signal: AbortSignal | undefined;
  readonly agentVersion: string | undefined;
  /** Why there is no connection; undefined if the link does not know. */
  readonly linkFailure: Cause | undefined;
  /** The time limit at which the attempt to connect was ended; undefined if the call failed for another reason. */
  readonly connectTimeoutMs?: number | undefined;
}

/**
 * Creates the GuestError for a call that failed with a gRPC status. If the caller's signal is aborted, creates the
 * error for an aborted call instead.
 */
export function guestError(error: ServiceError, call: FailedCall): GuestError {
  if (call.signal?.aborted === true) return abortedError(call.signal);
  const details = detailsOf(error);
  const name = statusName(error.code);
  const retryable = isUnsent(error) ? true : undefined;
  const shown = withoutControls(error);
  const made = (under: GuestStatus, cause: Partial<Cause> & Pick<Cause, "message">): GuestError => {
    const failed = new GuestError({ status: under, ...details, ...cause, cause: shown, retryable });
    return withCallersStack(failed);
  };
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

/** Escapes control characters in the texts of grpc-js's error, and hides the error's metadata when it is printed. */
function withoutControls(error: ServiceError): ServiceError {
  error.message = printable(error.message);
  error.details = printable(error.details);
  if (error.stack !== undefined) error.stack = printable(error.stack);
  return Object.defineProperty(error, "metadata", { enumerable: false });
}

/** In the stack of a grpc-js error, this text precedes the stack of the call (callErrorFromStatus of 1.14). */
const FOR_CALL = "\nfor call at\n";

/** Replaces the stack of the error by the stack of the code that made the call. */
function withCallersStack(error: GuestError): GuestError {
  const stack = (error.cause as ServiceError).stack ?? "";
  const at = stack.indexOf(FOR_CALL);
  if (at >= 0) error.stack = `${error.name}: ${error.message}\n${stack.slice(at + FOR_CALL.length)}`;
  return error;
}

/** Creates the GuestError for a call that its caller aborted. */
export function abortedError(signal: AbortSignal): GuestError {
  return failure("CANCELLED", "ABORT_ERR", "the call was aborted by its caller", signal.reason);
}

function detailsOf(error: ServiceError): ErrorDetails | undefined {
  const [value] = error.metadata?.get("grpc-status-details-bin") ?? [];
  return Buffer.isBuffer(value) ? readErrorDetails(value) : undefined;
}

function statusName(code: number): GuestStatus {
  const name = status[code];
  return name === undefined || name === "OK" ? "UNKNOWN" : (name as GuestStatus);
}

/**
 * Returns the message for a call whose method the server does not have: the agent is older than this client, or is not
 * a guest agent. Returns undefined for other errors.
 */
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

/** The agent's version in which a service or a method was added. */
const SINCE: Readonly<Record<string, string>> = {
  "svc.guest.v1alpha1.ExecSessions": "0.2.0",
  "svc.guest.v1alpha1.FileTree": "0.2.0",
  "svc.guest.v1alpha1.Lifecycle": "0.2.0",
  "svc.guest.v1alpha1.Tunnel": "0.2.0",
  "svc.guest.v1alpha1.UsageService": "0.3.0",
  ListPorts: "0.3.0",
  ListProcesses: "0.4.0",
  SignalProcess: "0.4.0",
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

/**
 * Time limits for finding out why there is no connection. REFUSAL_LIMIT_MS applies if the agent refused the connection;
 * the reason then arrives soon. SILENCE_LIMIT_MS applies if the connection hangs: the agent may never answer, and the
 * caller has already waited until the call's deadline.
 */
const REFUSAL_LIMIT_MS = 3_000;
export const SILENCE_LIMIT_MS = 300;

/**
 * Causes that a retry does not fix. CLIENT_CERTIFICATE_REFUSED is not in the list, because restore steps may be about
 * to replace the certificate authority that the guest accepts.
 */
const PERMANENT: ReadonlySet<string> = new Set<ErrorCode>([
  // The agent of a restored guest listens as soon as the guest runs. If the guest refuses a connection, it will refuse
  // later connections, too.
  "CONNECTION_REFUSED",
  "NOT_AN_AGENT",
  "CLIENT_CERTIFICATE_EXPIRED",
  "CLIENT_CERTIFICATE_TOO_LONG",
  "SERVER_NAME_MISMATCH",
  "SERVER_CERTIFICATE_EXPIRED",
  "SERVER_CERTIFICATE_NOT_YET_VALID",
  "SERVER_CERTIFICATE_UNTRUSTED",
]);

/** Whether a later attempt to connect may succeed. */
export function mayConnect(error: unknown): boolean {
  if (!(error instanceof GuestError) || PERMANENT.has(error.code)) return false;
  return error.status === "UNAVAILABLE" || (error.status === "PERMISSION_DENIED" && error.reason === undefined);
}

/**
 * Returns the time limit, in milliseconds, for finding out why a call had no connection. Returns undefined if the error
 * already has the reason, or if the call had a connection.
 */
export function explanationLimitMs(error: ServiceError): number | undefined {
  if (isUnconnected(error)) return SILENCE_LIMIT_MS;
  return isRefusedConnection(error) || isClosedUnready(error) ? REFUSAL_LIMIT_MS : undefined;
}

const ERROR_INFO_TYPE = "type.googleapis.com/google.rpc.ErrorInfo";

/** The fields of the google.rpc.Status that the agent sends with an error, in grpc-status-details-bin. */
interface ErrorDetails {
  /** The exact message of the error. It is sent here because the header grpc-message may have lost some characters. */
  readonly message: string | undefined;
  /** The ErrorInfo of the status; undefined if it has none. */
  readonly reason: string | undefined;
  readonly metadata: Readonly<Record<string, string>>;
}

/**
 * Decodes grpc-status-details-bin, a google.rpc.Status with the fields message = 2 and details = 3. Returns undefined
 * if the bytes are malformed.
 */
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
