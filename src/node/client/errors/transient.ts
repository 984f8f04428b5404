import { GuestError, type GuestStatus } from "./errors.ts";

/**
 * Statuses that grpc-js reports for a failed connection, but also for other failures. Such a status means a failed
 * connection only if neither the agent nor this library has given a reason.
 */
const BROKEN: ReadonlySet<GuestStatus> = new Set(["INTERNAL", "CANCELLED", "UNKNOWN"]);

/** The reasons with which the agent refuses a call that may succeed over a new connection. */
const TRANSIENT: ReadonlySet<string> = new Set(["AUTHORITY_REPLACED", "SHUTTING_DOWN", "TOO_MANY_CONNECTIONS"]);

/**
 * Whether reconnecting may succeed with the address and credentials that are current at the time of the attempt. True
 * in these cases:
 *
 * - The connection was lost or could not be made.
 * - The agent has too many connections.
 * - The agent is shutting down (SHUTTING_DOWN). It may be restarting, as after a crash.
 * - The agent refuses the token or the client's certificate. A restore or a renewal may have replaced these credentials
 *   on only one side so far.
 *
 * The result does not say whether the failed call was executed.
 */
export function isTransient(error: unknown): error is TransientError {
  if (!(error instanceof GuestError)) return false;
  const { status, code, reason } = error;
  if (isRefusal(error) || (reason !== undefined && TRANSIENT.has(reason))) return true;
  if (reason !== undefined || code === "CLIENT_CERTIFICATE_TOO_LONG") return false;
  return status === "UNAVAILABLE" || (BROKEN.has(status) && code === status);
}

/** Narrower than GuestError: otherwise TypeScript would infer `never` for a GuestError where `isTransient` is false. */
type TransientError = GuestError & { readonly status: Exclude<GuestStatus, "DEADLINE_EXCEEDED"> };

/**
 * Whether a call may continue after a reconnect. False for an agent that is shutting down, because its kept commands
 * and watches end with it.
 */
export function mayContinue(error: unknown): error is TransientError {
  return isTransient(error) && error.reason !== "SHUTTING_DOWN";
}

/** Whether the agent refused the credentials, so that a retry with the same ones would fail again. */
export function isRefusal({ status, code }: GuestError): boolean {
  return status === "UNAUTHENTICATED" || code === "CLIENT_CERTIFICATE_REFUSED" || code === "CLIENT_CERTIFICATE_EXPIRED";
}
