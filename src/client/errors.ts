import { type ServiceError, status } from "@grpc/grpc-js";
import { type ErrorDetails, readErrorDetails } from "./error-details.ts";

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
  readonly status: GuestStatus;
  /** The agent's stable constant for the cause, such as "EXEC_NOT_FOUND"; undefined when the agent never answered. */
  readonly reason: string | undefined;
  /** What it was about: path, errno, step, field. */
  readonly metadata: Readonly<Record<string, string>>;

  constructor(parts: GuestErrorParts) {
    super(parts.message, parts.cause === undefined ? undefined : { cause: parts.cause });
    this.status = parts.status;
    this.reason = parts.reason;
    this.metadata = parts.metadata ?? {};
  }
}

/** The GuestError for a call that failed with a gRPC status. An aborted signal is its own explanation. */
export function guestError(error: ServiceError, signal?: AbortSignal): GuestError {
  if (signal?.aborted === true) return abortedError(signal);
  const details = detailsOf(error);
  return new GuestError({
    status: statusName(error.code),
    message: details?.message ?? withoutNoise(error.details),
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

/** What grpc-js wraps around the one thing that matters of a failed connection. */
function withoutNoise(details: string): string {
  return details
    .replace(/^No connection established\. Last error: /, "")
    .replace(/\.?\s*Resolution note: $/, "")
    .replace(/^Error(?: \[\w+\])?: /, "")
    .replace(/^Failed to connect \(.*\)$/, "the connection was closed before it was ready")
    .trim();
}
