import { GuestError, type GuestStatus } from "./errors.ts";

/**
 * Statuses that grpc-js uses both for a failed connection and for other failures. If neither the agent nor this library
 * has given a reason, such a status means that the connection failed.
 */
const BROKEN: ReadonlySet<GuestStatus> = new Set(["INTERNAL", "CANCELLED", "UNKNOWN"]);

/** The agent's reasons to refuse a call that may succeed over a later connection. */
const TRANSIENT: ReadonlySet<string> = new Set(["AUTHORITY_REPLACED", "SHUTTING_DOWN", "TOO_MANY_CONNECTIONS"]);

/**
 * Whether reconnecting may succeed with the address and credentials that are current at the time of the attempt. True
 * if the connection was lost or could not be made, or if the agent has too many connections. Also true if the agent is
 * shutting down (SHUTTING_DOWN), because it may be restarting, as after a crash. Also true if the agent refuses the
 * token or the client's certificate: a restore or a renewal may so far have replaced these credentials on only one
 * side. Says nothing about whether the failed call was executed.
 */
export function isTransient(error: unknown): error is TransientError {
  if (!(error instanceof GuestError)) return false;
  const { status, code, reason } = error;
  if (isRefusal(error) || (reason !== undefined && TRANSIENT.has(reason))) return true;
  if (reason !== undefined || code === "CLIENT_CERTIFICATE_TOO_LONG") return false;
  return status === "UNAVAILABLE" || (BROKEN.has(status) && code === status);
}

/** Unlike GuestError, this type does not make a GuestError `never` where `isTransient` returns false. */
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
