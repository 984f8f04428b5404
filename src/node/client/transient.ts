import { GuestError, type GuestStatus } from "./errors.ts";

/** Statuses of a call whose connection failed, where neither the agent nor this library gives a reason. */
const BROKEN: ReadonlySet<GuestStatus> = new Set(["INTERNAL", "CANCELLED", "UNKNOWN"]);

/**
 * Whether reconnecting may help, with the address and credentials of then: the connection is lost or cannot be made, or
 * the agent refuses the token or the client's certificate, as in the moment in which a restore or a renewal has
 * replaced them on one side only, or has no place for another connection. Says nothing about whether the failed call
 * has been executed.
 */
export function isTransient(error: unknown): error is GuestError {
  if (!(error instanceof GuestError)) return false;
  const { status, code, reason } = error;
  if (isRefusal(error) || reason === "AUTHORITY_REPLACED" || reason === "TOO_MANY_CONNECTIONS") return true;
  if (reason !== undefined || code === "CLIENT_CERTIFICATE_TOO_LONG") return false;
  return status === "UNAVAILABLE" || (BROKEN.has(status) && code === status);
}

/** Whether the agent refused the credentials, so that the same ones would be refused again. */
export function isRefusal({ status, code }: GuestError): boolean {
  return status === "UNAUTHENTICATED" || code === "CLIENT_CERTIFICATE_REFUSED" || code === "CLIENT_CERTIFICATE_EXPIRED";
}
