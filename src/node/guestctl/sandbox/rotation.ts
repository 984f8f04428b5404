import type { NodeStatus, RotationReport, SandboxInfo } from "../../sandboxes/index.ts";
import { printable, type ReportLine } from "../cli/index.ts";

const DAY_MS = 86_400_000;
/** If credentials expire within this time, guestctl advises replacing them. */
const SOON_MS = 30 * DAY_MS;

/** Describes the result of rotating many sandboxes' credentials. */
export function rotationText({ rotated, skipped, failed }: RotationReport): string {
  const lines = [
    ...rotated.map((name) => `${name} has new credentials\n`),
    ...skipped.map((name) => `${name} is not running: its credentials were not changed\n`),
    ...failed.map(({ name, code, message }) => `failed: ${name}: ${printable(message)} [${code}]\n`),
  ];
  return lines.length === 0 ? "nothing to rotate\n" : lines.join("");
}

/**
 * Describes when the credentials of a sandbox expire, and how to renew them if they expire soon. Returns an empty
 * string if the time is not known.
 */
export function expiryWords({ name, credentialsExpireMs }: SandboxInfo): string {
  if (credentialsExpireMs === undefined) return "";
  const until = `, valid until ${new Date(credentialsExpireMs).toISOString().slice(0, 10)}`;
  const leftMs = credentialsExpireMs - Date.now();
  if (leftMs > SOON_MS) return until;
  const when = leftMs <= 0 ? "expired" : `in ${Math.floor(leftMs / DAY_MS)} days`;
  return `${until} (${when}); to renew them: guestctl sandbox rotate ${name}`;
}

/** Returns the line of `sandbox node` about credentials that expire soon. Returns an empty list if no credentials do. */
export function credentialLines({ expiring }: Pick<NodeStatus, "expiring">): ReportLine[] {
  if (expiring.length === 0) return [];
  const [first] = expiring;
  const day = new Date(first?.expireMs ?? 0).toISOString().slice(0, 10);
  const words = `the certificates of ${expiring.length} sandboxes expire within 30 days, beginning with ${first?.name} on ${day}; to renew them: guestctl sandbox rotate --all`;
  return [["credentials", words]];
}
