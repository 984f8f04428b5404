import { printable } from "../../../shared/printable.ts";
import type { RestoreWarning } from "../../client/index.ts";
import type { JournalEntry, RanUnfrozen, SandboxEntry, SuspendReport } from "./journal.ts";

/** A problem that occurred during an operation, although the operation succeeded. */
export interface Warning {
  readonly code: RestoreWarning["code"] | "BUNDLE_DIFFERS" | "NOT_FROZEN" | "STOP_BOUNDED" | "STOP_FORCED";
  readonly message: string;
}

/** Why a requested freeze failed; undefined if the session was frozen, or no freeze was requested. */
export function unfrozenBecause(report: SuspendReport | undefined): string | undefined {
  if (report?.freeze === "unsupported") return "the agent is too old to freeze a session";
  return report?.freeze === "failed" ? `the agent reports ${printable(String(report.freezeProblem))}` : undefined;
}

/** Warnings about a suspension: NOT_FROZEN if the session could not be frozen. */
export function suspensionWarnings(report: SuspendReport): readonly Warning[] {
  const because = unfrozenBecause(report);
  if (because === undefined) return [];
  const message = `the session could not be frozen (${because}), so it ran until it was suspended; after each resume or fork from this state, it runs with the old time and random numbers until its restore steps are done`;
  return [{ code: "NOT_FROZEN", message }];
}

/**
 * Returns the warning NOT_FROZEN if a resumed sandbox, or the origin of a fork, was not frozen at its last suspension.
 *
 * @param replaced what the processes had from before the suspension, besides the old time, until the restore steps
 *   replaced it, such as "the secrets of its origin". The warning names it
 */
export function unfrozenWarnings({ kind, preSnapshot }: JournalEntry, replaced?: string): readonly Warning[] {
  const because = kind === "sandbox" ? unfrozenBecause(preSnapshot) : undefined;
  if (because === undefined) return [];
  const also = replaced === undefined ? "" : ` and ${replaced}`;
  const message = `the session was not frozen before the suspension (${because}), so its processes ran before the restore steps, with the old time${also}; clones of the sandbox may draw the same random numbers`;
  return [{ code: "NOT_FROZEN", message }];
}

/**
 * Returns a record which says that the session ran before its restore steps. If that did not happen in this operation,
 * returns the entry's record of an earlier operation, or undefined if there is none.
 *
 * @param isLate whether the session thawed by itself before its restore steps
 */
export function ranUnfrozen(operation: string, entry: SandboxEntry, isLate = false): RanUnfrozen | undefined {
  const problem = isLate ? "the freeze ended too early, at its time limit" : unfrozenBecause(entry.preSnapshot);
  return problem === undefined ? entry.ranUnfrozen : { operation, atMs: Date.now(), problem };
}
