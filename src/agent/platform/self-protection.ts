import { readFileSync, writeFileSync } from "node:fs";
import { getPriority, setPriority } from "node:os";

import type { Addon } from "../native/index.ts";

/** When memory runs out, the kernel should kill the workload first and the agent only as a last resort. */
const OOM_SCORE_ADJ = -900;
/** Added to the children's score if the agent may not lower its own: raising requires no privilege (proc(5)). */
const OOM_SCORE_DISTANCE = 900;
/**
 * Added to the score of a command compared to the workload, as if it used half of the guest's memory: killing a command
 * ends only the command, killing the workload ends the sandbox.
 */
const COMMAND_DISTANCE = 500;
const MAX_OOM_SCORE_ADJ = 1000;
/** The kernel never kills a process with -1000, and panics if only such processes are left. So no child gets -1000. */
const LEAST_CHILD_SCORE_ADJ = -999;
const OOM_SCORE_FILE = "/proc/self/oom_score_adj";
/** High enough to respond in time while the workload is busy. More could starve the workload. */
const PRIORITY = -5;

/** OOM scores and scheduling priority for the agent's children. */
export interface ChildPriority {
  /** Higher than the agent's; undefined: unknown. */
  readonly workloadOomScoreAdj: number | undefined;
  /** For commands, hooks and ready_cmd: higher than the workload's. */
  readonly commandOomScoreAdj: number | undefined;
  /** The agent's priority before it raised its own; undefined: it did not. */
  readonly priority: number | undefined;
}

/** Returns the workload's score: the container's original one, or a higher one if the agent may not lower its own. */
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
    // Requires CAP_SYS_RESOURCE.
    return Math.min(own + OOM_SCORE_DISTANCE, MAX_OOM_SCORE_ADJ);
  }
}

/** Raises the priority of this thread, which later threads inherit. Returns the old priority if it changed. */
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
 * Protects the agent from being starved, OOM-killed or read by other processes in the guest, as far as its privileges
 * allow. Call it once, early. Dumps are forbidden last, because then /proc/self belongs to root.
 *
 * @param containerOomScoreAdj the score before the launcher changed it; undefined: it did not
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
