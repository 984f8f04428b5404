import type { Health } from "../../client/index.ts";
import type { SandboxEntry } from "../state/index.ts";

/** An action that should be carried out on a sandbox now, and the reason for it. */
export interface Verdict {
  readonly action: "standby" | "stop" | "remove";
  readonly because: string;
}

type Watched = Pick<SandboxEntry, "runEpochMs" | "ttlMs" | "idleAction">;
type Stamps = Pick<
  Health,
  "guestTime" | "guestTimeNanos" | "lastUserActivity" | "lastUserActivityNanos" | "idleDeclared" | "idleDeclaredNanos"
>;

/**
 * Decides from an answer of Health which action is due. The timestamps in the answer are of the guest's clock, so this
 * function first converts them to the host's clock, by the current difference between the two clocks.
 *
 * The time to live begins at the last user activity, or at the time at which the sandbox began to run (`runEpochMs`),
 * whichever is later. An idle declaration of the workload counts only if it was made after both of these times.
 */
export function decide({ runEpochMs, ttlMs, idleAction }: Watched, stamps: Stamps, nowMs: number): Verdict | undefined {
  if (runEpochMs === undefined) return undefined;
  const aheadMs = (millisecondsOf(stamps.guestTime, stamps.guestTimeNanos) ?? nowMs) - nowMs;
  const activityMs = (millisecondsOf(stamps.lastUserActivity, stamps.lastUserActivityNanos) ?? 0) - aheadMs;
  const quietMs = nowMs - Math.max(activityMs, runEpochMs);
  if (ttlMs !== undefined && quietMs >= ttlMs) {
    return { action: "remove", because: `its user has done nothing for ${Math.floor(quietMs)} ms` };
  }
  const declaredMs = millisecondsOf(stamps.idleDeclared, stamps.idleDeclaredNanos);
  if (idleAction === "none" || declaredMs === undefined) return undefined;
  const idleMs = declaredMs - aheadMs;
  return idleMs > runEpochMs && idleMs >= activityMs
    ? { action: idleAction, because: "its workload has declared itself idle" }
    : undefined;
}

function millisecondsOf(time: Date | undefined, nanos: number): number | undefined {
  return time && Math.floor(time.getTime() / 1_000) * 1_000 + nanos / 1e6;
}
