import { type ServiceError, status } from "@grpc/grpc-js";
import { type ErrorDetails, readErrorDetails } from "./error-details.ts";
import { nextStepFor } from "./next-step.ts";

/** A gRPC status by its canonical name. Never OK. */
export type GuestStatus = Exclude<keyof typeof status, "OK">;

/** What is known of a failed call. */
export interface GuestErrorParts {
  readonly status: GuestStatus;
  readonly message: string;
  readonly reason?: string | undefined;
  readonly metadata?: Readonly<Record<string, string>> | undefined;
  readonly cause?: unknown;
}

/** The one error of this client: whatever kept a call from its answer. */
export class GuestError extends Error {
  override readonly name = "GuestError";
  /** Canonical name of the gRPC status. */
  readonly status: GuestStatus;
  /** Its number. */
  readonly code: number;
  /** The agent's stable constant for the cause, such as "EXEC_NOT_FOUND"; undefined when the agent never answered. */
  readonly reason: string | undefined;
  /** What it was about: path, errno, step, field. */
  readonly metadata: Readonly<Record<string, string>>;
  /** What to do about it, in a few words; undefined where the message says it all. */
  readonly nextStep: string | undefined;

  constructor(parts: GuestErrorParts) {
    super(parts.message, parts.cause === undefined ? undefined : { cause: parts.cause });
    this.status = parts.status;
    this.code = status[parts.status];
    this.reason = parts.reason;
    this.metadata = parts.metadata ?? {};
    this.nextStep = nextStepFor(parts);
  }
}

/** The call that failed, and what is known about it from elsewhere. */
export interface FailedCall {
  /** Name of the method. */
  readonly method: string;
  readonly signal: AbortSignal | undefined;
  readonly agentVersion: string | undefined;
  /** Why there is no connection, where the link knows it. */
  readonly linkFailure: string | undefined;
}

/** The GuestError for a call that failed with a gRPC status. An aborted signal is its own explanation. */
export function guestError(error: ServiceError, call: FailedCall): GuestError {
  if (call.signal?.aborted === true) return abortedError(call.signal);
  const details = detailsOf(error);
  const name = statusName(error.code);
  return new GuestError({
    status: name,
    message: missingMethod(name, details, error, call) ?? details?.message ?? connectionMessage(name, error, call),
    reason: details?.reason,
    metadata: details?.metadata,
    cause: error,
  });
}

/** The GuestError for a call that its caller gave up. */
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

/** An agent that is older than this client, or some other server that knows no such method. */
function missingMethod(
  name: GuestStatus,
  details: ErrorDetails | undefined,
  error: ServiceError,
  { method, agentVersion }: FailedCall,
): string | undefined {
  if (name !== "UNIMPLEMENTED" || (details?.reason ?? name) !== name || IS_NO_ANSWER.test(error.details))
    return undefined;
  return `the agent${agentVersion === undefined ? "" : ` (version ${agentVersion})`} has no method ${method}`;
}

/** grpc-js reports with UNIMPLEMENTED also what is no gRPC answer at all. */
const IS_NO_ANSWER = /^(?:No message received|Too many responses received|Received HTTP status code)/;

function connectionMessage(name: GuestStatus, error: ServiceError, { linkFailure }: FailedCall): string {
  return (name === "UNAVAILABLE" ? linkFailure : undefined) ?? withoutNoise(error.details);
}

/** What grpc-js wraps around the one thing that matters of a failed connection. */
function withoutNoise(details: string): string {
  return details
    .replace(/^No connection established\. Last error: /, "")
    .replace(/\.?\s*Resolution note: $/, "")
    .replace(/^Error(?: \[\w+\])?: /, "")
    .replace(/^Failed to connect \(.*\)$/, "the connection was closed before it was ready")
    .trim();
}
