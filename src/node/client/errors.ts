import { fromBinary } from "@bufbuild/protobuf";
import { BinaryReader } from "@bufbuild/protobuf/wire";
import { AnySchema } from "@bufbuild/protobuf/wkt";
import { type ServiceError, status } from "@grpc/grpc-js";
import { ErrorInfoSchema } from "../../shared/gen/google/rpc/error_details_pb.ts";
import { inOptions } from "./words.ts";

/** A gRPC status by its canonical name. Never OK. */
export type GuestStatus = Exclude<keyof typeof status, "OK">;

/** What is known of a failed call. */
export interface GuestErrorParts {
  readonly status: GuestStatus;
  readonly message: string;
  readonly reason?: string | undefined;
  /** Default: the reason, or else the status. */
  readonly code?: string | undefined;
  readonly metadata?: Readonly<Record<string, string>> | undefined;
  readonly cause?: unknown;
}

/** The only error that this client throws: why a call failed. */
export class GuestError extends Error {
  override readonly name = "GuestError";
  /** Canonical name of the gRPC status. */
  readonly status: GuestStatus;
  /** Stable constant of the cause: the agent's `reason`, one of this library, or the status. */
  readonly code: string;
  /** The agent's stable constant for the cause, such as "EXEC_NOT_FOUND"; undefined when the agent never answered. */
  readonly reason: string | undefined;
  /** What the error is about: path, errno, step, field. */
  readonly metadata: Readonly<Record<string, string>>;
  /** What to do about it, in a few words; undefined: the message says everything. */
  readonly nextStep: string | undefined;

  constructor(parts: GuestErrorParts) {
    super(parts.message, parts.cause === undefined ? undefined : { cause: parts.cause });
    this.status = parts.status;
    this.code = parts.code ?? parts.reason ?? parts.status;
    this.reason = parts.reason;
    this.metadata = parts.metadata ?? {};
    this.nextStep = nextStepFor(parts);
  }
}

/** Whether a call failed with its connection. The agent's own UNAVAILABLE, sent while it shuts down, has a reason. */
export function isLost(error: unknown): error is GuestError {
  return error instanceof GuestError && error.status === "UNAVAILABLE" && error.reason === undefined;
}

/** The GuestError for an argument that cannot be sent or used. */
export function invalidArgument(message: string, cause?: unknown): GuestError {
  return new GuestError({ status: "INVALID_ARGUMENT", message, cause });
}

/**
 * A call's error with what its type promises. grpc-js's error for a message that it cannot decompress has neither code
 * nor details (ResolvingCall of 1.14 takes them from whatever was thrown).
 */
export function completed(error: ServiceError): ServiceError {
  const { details }: { readonly details?: unknown } = error;
  if (typeof details === "string") return error;
  return Object.assign(error, {
    code: status.INTERNAL,
    details: "the agent's answer cannot be read: it is compressed, in a way that this client does not know",
  });
}

/** The failed call, and what its connection knows about it. */
export interface FailedCall {
  readonly method: string;
  readonly service: string;
  readonly signal: AbortSignal | undefined;
  readonly agentVersion: string | undefined;
  /** Why there is no connection, if the link knows. */
  readonly linkFailure: string | undefined;
  /** Time after which no connection was ready; undefined: a different error. */
  readonly connectTimeoutMs?: number | undefined;
}

/** The GuestError for a call that failed with a gRPC status. If the signal was aborted, the reason is its abort. */
export function guestError(error: ServiceError, call: FailedCall): GuestError {
  if (call.signal?.aborted === true) return abortedError(call.signal);
  const details = detailsOf(error);
  const name = statusName(error.code);
  const agentMessage = details?.message === undefined ? undefined : inOptions(details.message);
  const refusal = refusedCertificate(error);
  if (call.connectTimeoutMs !== undefined) {
    const because = call.linkFailure === undefined ? "" : `: ${call.linkFailure}`;
    const message = `no connection within ${call.connectTimeoutMs} ms${because}`;
    return new GuestError({ status: "UNAVAILABLE", code: "CONNECT_TIMED_OUT", message, cause: error });
  }
  if (refusal !== undefined) return new GuestError({ status: "PERMISSION_DENIED", message: refusal, cause: error });
  return new GuestError({
    status: isRefusedConnection(error) ? "PERMISSION_DENIED" : name,
    message: missingMethod(name, details, error, call) ?? agentMessage ?? connectionMessage(name, error, call),
    reason: details?.reason,
    metadata: details?.metadata,
    cause: error,
  });
}

/** The GuestError for a call that its caller aborted. */
export function abortedError(signal: AbortSignal): GuestError {
  return new GuestError({ status: "CANCELLED", message: "the call was aborted by its caller", cause: signal.reason });
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
  if (name !== "UNIMPLEMENTED" || (details?.reason ?? name) !== name || IS_NO_ANSWER.test(error.details))
    return undefined;
  const since = SINCE[service];
  const known = agentVersion === undefined ? "" : ` (version ${agentVersion})`;
  if (since !== undefined) return `this agent${known} is older than ${since}, which brought ${method}`;
  return `the agent${known} has no method ${method}`;
}

/** Versions of the agent that brought whole services. */
const SINCE: Readonly<Record<string, string>> = {
  "svc.guest.v1alpha1.ExecSessions": "0.2.0",
  "svc.guest.v1alpha1.FileTree": "0.2.0",
  "svc.guest.v1alpha1.Lifecycle": "0.2.0",
  "svc.guest.v1alpha1.Tunnel": "0.2.0",
};

/** grpc-js gives UNIMPLEMENTED also to answers that are not gRPC. */
const IS_NO_ANSWER = /^(?:No message received|Too many responses received|Received HTTP status code)/;

function connectionMessage(name: GuestStatus, error: ServiceError, { linkFailure }: FailedCall): string {
  if (linkFailure !== undefined && isUnconnected(error)) return `no connection until the deadline: ${linkFailure}`;
  if (isRefusedConnection(error)) return linkFailure ?? REFUSED_CONNECTION;
  return (name === "UNAVAILABLE" ? linkFailure : undefined) ?? withoutNoise(error.details);
}

const REFUSED_CONNECTION = "the agent refused the connection, most often for its client certificate";

/** The agent's alerts about a client certificate (RFC 8446, 6.2), as OpenSSL names them. */
const CERTIFICATE_ALERT =
  /\balert (unknown ca|bad certificate|unsupported certificate|certificate (?:expired|revoked|unknown|required))\b/i;
const ALERT_WORDS: ReadonlyMap<string, string> = new Map([
  ["unknown ca", "it is not of the agent's authority"],
  ["certificate expired", "it or its authority has expired, by the guest's clock"],
  ["unsupported certificate", "it is not for clients"],
  ["certificate required", "there is none"],
]);

/** Why the agent refused the client's certificate, by its alert; undefined: a different error. */
function refusedCertificate({ details }: ServiceError): string | undefined {
  const alert = CERTIFICATE_ALERT.exec(details)?.[1]?.toLowerCase();
  if (alert === undefined) return undefined;
  return `the agent refused your client certificate: ${ALERT_WORDS.get(alert) ?? "it is not valid"} (TLS alert ${alert})`;
}

/**
 * An agent of 0.2.0 or older refused the certificate by a GOAWAY: INADEQUATE_SECURITY (12), as grpc-js and Node report
 * it.
 */
function isRefusedConnection({ details }: ServiceError): boolean {
  return details === "Protocol not secure enough" || details.endsWith("Session closed with error code 12");
}

/** The call waited for a connection until its deadline (grpc-js, deadline.ts and internal-channel.ts). */
function isUnconnected({ code, details }: ServiceError): boolean {
  return code === status.DEADLINE_EXCEEDED && /Waiting for LB pick|name resolution$/.test(details);
}

/** A refused connection is explained by the agent's answer; a hanging one may stay silent past the deadline. */
const REFUSAL_LIMIT_MS = 3_000;
export const SILENCE_LIMIT_MS = 300;

/**
 * Whether a later attempt may connect. Not if nobody listens: a restored guest has its listener from its first
 * instruction on. Not if the agent is of another authority. But a guest may be about to accept this client's
 * authority.
 */
export function mayConnect(error: unknown): boolean {
  if (!(error instanceof GuestError)) return false;
  const { status: name, reason, message } = error;
  if (name === "PERMISSION_DENIED") return reason === undefined && !/expired/.test(message);
  return (
    name === "UNAVAILABLE" &&
    (reason !== undefined || !/ECONNREFUSED|certificate|altname|SSL|wrong version/i.test(message))
  );
}

/** Milliseconds for finding out why a call has no connection; undefined: its error says why, or it had one. */
export function explanationLimitMs(error: ServiceError): number | undefined {
  if (isUnconnected(error)) return SILENCE_LIMIT_MS;
  const isClosed = error.code === status.UNAVAILABLE && /Failed to connect \(/.test(error.details);
  return isRefusedConnection(error) || isClosed ? REFUSAL_LIMIT_MS : undefined;
}

/** Removes what grpc-js and OpenSSL wrap around the reason of a failed connection. */
function withoutNoise(details: string): string {
  return details
    .replace(/^No connection established\. Last error: /, "")
    .replace(/\.?\s*Resolution note: $/, "")
    .replace(/^Error(?: \[\w+\])?: /, "")
    .replace(/^[\dA-F]+:error:[\dA-F]+:SSL routines:\w*:([^:]+):.*$/s, "the TLS handshake failed: SSL $1")
    .replace(/^Failed to connect \(.*\)$/, "the connection was closed before it was ready")
    .trim();
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

const BY_REASON: Readonly<Record<string, string>> = {
  KEEP_UNSUPPORTED: "update the agent, or run the command without keep; it may be that of an old snapshot",
  SHUTTING_DOWN: "the sandbox is going away: nothing to do here",
  TOO_MANY_EXECS: "wait until a command has ended",
  CHECKSUM_MISMATCH: "the content changed on its way or at its source: write it again",
  SIZE_MISMATCH: "the content changed at its source: write it again",
};

/** What to do about a failed call; undefined: its message says everything. */
function nextStepFor({ status: name, reason, message }: GuestErrorParts): string | undefined {
  if (name === "UNAUTHENTICATED") return "give the token of this very instance; it changes with a restore";
  if (name === "UNIMPLEMENTED") return "update the agent, or do without; it may be that of an old snapshot";
  if (reason !== undefined) return BY_REASON[reason];
  if (name === "DEADLINE_EXCEEDED" && message.startsWith("no connection")) return connectionStep(message);
  if (name === "DEADLINE_EXCEEDED") return "check that the agent runs, or give the call more time";
  if (/refused (?:your client certificate|the connection)/.test(message)) return connectionStep(message);
  return name === "UNAVAILABLE" ? connectionStep(message) : undefined;
}

function connectionStep(message: string): string {
  if (/bridge command/.test(message)) return "run the bridge command by hand: it must wait for input, silently";
  if (/your client certificate: .*expired/.test(message))
    return "renew the client certificate, or look at the guest's clock";
  if (/client certificate/.test(message)) return "give the client certificate that was issued for this agent";
  if (/says nothing|no HTTP\/2/.test(message)) return "what listens there is no guest agent; check the address";
  if (/nothing answers/.test(message)) return "check the address, and the network on the way";
  if (/altname/i.test(message)) return "give the name in the agent's certificate as serverName";
  if (/certificate has expired/i.test(message)) return "renew the agent's certificate, or look at this host's clock";
  if (/certificate is not yet valid/i.test(message))
    return "look at this host's clock: the agent's certificate begins later";
  if (/certificate/i.test(message)) return "give the authority that issued the agent's certificate as caPem";
  // OpenSSL's answer to a Certificate message that is too large, or has too many certificates.
  if (/alert (?:illegal parameter|decode error)/.test(message))
    return "shorten the chain of the client certificate, at first by the root: the agent takes four certificates, 5.5 KiB";
  if (/SSL|wrong version/i.test(message)) return "what listens there is no guest agent; check the address";
  if (/dropped|ECONNRESET|pings/.test(message)) return "the connection broke: look whether the call has taken effect";
  if (/closed before it was ready/.test(message)) return "check that the agent takes this client certificate";
  return "check that the agent runs and that the address is right";
}
