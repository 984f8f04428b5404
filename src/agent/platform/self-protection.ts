import { readFileSync, writeFileSync } from "node:fs";
import { getPriority, setPriority } from "node:os";

import type { Addon } from "../native/index.ts";

/** When memory runs out the kernel kills the workload first, and the agent only as a last resort. */
const OOM_SCORE_ADJ = -900;
/** How much higher the children's score is where the agent may not lower its own: raising needs no right (proc(5)). */
const OOM_SCORE_DISTANCE = 900;
/**
 * How much higher a command's is than the workload's: as if it had half of the guest's memory. With the workload the
 * sandbox ends; with a command only that.
 */
const COMMAND_DISTANCE = 500;
const MAX_OOM_SCORE_ADJ = 1000;
/** Whom the kernel never kills has -1000. Where only such processes are left it panics: no child gets that. */
const LEAST_CHILD_SCORE_ADJ = -999;
const OOM_SCORE_FILE = "/proc/self/oom_score_adj";
/** Enough for timely answers beside a busy workload. More could starve the workload. */
const PRIORITY = -5;

/** OOM scores and priority that the agent's children get. */
export interface ChildPriority {
  /** Above the agent's. Undefined: they are not known. */
  readonly workloadOomScoreAdj: number | undefined;
  /** Of execs, hooks and ready_cmd: above the workload's. */
  readonly commandOomScoreAdj: number | undefined;
  /** From before the agent changed its own. Undefined: it did not. */
  readonly priority: number | undefined;
}

/** Returns the workload's score: the container's, or a higher one if the agent may not lower its own. */
function protectFromOomKiller(container: number | undefined): number | undefined {
  let own: number;
  try {
    own = Number(readFileSync(OOM_SCORE_FILE, "utf8"));
  } catch {
    return undefined;
  }
  try {
    if (own > OOM_SCORE_ADJ) writeFileSync(OOM_SCORE_FILE, String(OOM_SCORE_ADJ));
    return Math.max(container ?? own, LEAST_CHILD_SCORE_ADJ);
  } catch {
    // Without CAP_SYS_RESOURCE.
    return Math.min(own + OOM_SCORE_DISTANCE, MAX_OOM_SCORE_ADJ);
  }
}

/** Raises this thread's priority, which threads started later inherit. Returns the old one if it changed. */
function raisePriority(): number | undefined {
  try {
    const before = getPriority();
    if (before <= PRIORITY) return undefined;
    setPriority(PRIORITY);
    return before;
  } catch {
    return undefined;
  }
}

/**
 * Protects the process from being starved, killed or read by others in the guest, as far as its privileges allow. Call
 * it once, early. Forbids dumps last: without privileges /proc/self belongs to root from then on.
 *
 * @param containerOomScoreAdj of before the launcher changed it; undefined: it did not
 */
export function protectSelf(
  addon: Pick<Addon, "forbidDumps">,
  containerOomScoreAdj: number | undefined,
): ChildPriority {
  const workloadOomScoreAdj = protectFromOomKiller(containerOomScoreAdj);
  const ofCommands = Math.min((workloadOomScoreAdj ?? 0) + COMMAND_DISTANCE, MAX_OOM_SCORE_ADJ);
  const priority = raisePriority();
  addon.forbidDumps();
  const commandOomScoreAdj = workloadOomScoreAdj === undefined ? undefined : ofCommands;
  return { workloadOomScoreAdj, commandOomScoreAdj, priority };
}
