import type { Awakening, Warning } from "../../sandboxes/index.ts";
import { STATUS_NOT_AS_INTENDED, STATUS_NOT_ISOLATED } from "../cli/index.ts";

/** Codes of the warnings which say that a sandbox and its clones may have the same random numbers, keys or secrets. */
const NOT_ISOLATED: ReadonlySet<string> = new Set<Warning["code"]>(["NOT_FROZEN", "THAWED_WITHOUT_DUTIES"]);

/** A clock error below this is common on a busy host and does not mean that the restore failed. */
const CLOCK_OFF_MS = 1_000;

/** The result of waking up a sandbox, or of any operation that has only warnings. */
type Outcome = Pick<Awakening, "warnings"> & Partial<Pick<Awakening, "ready" | "clockErrorMs" | "notReseeded">>;

/**
 * The exit status of all verbs of `guestctl sandbox`: 3 if isolation is not guaranteed, 1 if anything else failed, and
 * otherwise 0. A clock that is off by less than a second does not count as a failure. If a sandbox was booted instead
 * of restored, its outcome is undefined, and counts as 0.
 */
export function statusOf(...outcomes: readonly (Outcome | undefined)[]): number {
  const statuses = outcomes.map((outcome) => (outcome === undefined ? 0 : statusOfOne(outcome)));
  return Math.max(0, ...statuses);
}

function statusOfOne({ warnings, ready = true, clockErrorMs = 0, notReseeded = [] }: Outcome): number {
  if (notReseeded.length > 0 || warnings.some(({ code }) => NOT_ISOLATED.has(code))) return STATUS_NOT_ISOLATED;
  const isClockNear = Math.abs(clockErrorMs) < CLOCK_OFF_MS;
  const isAsIntended = ready && warnings.every(({ code }) => code === "CLOCK_OFF" && isClockNear);
  return isAsIntended ? 0 : STATUS_NOT_AS_INTENDED;
}
