import { readFileSync, writeFileSync } from "node:fs";
import { getPriority, setPriority } from "node:os";

import type { Addon } from "../native/index.ts";

/** OOM score of the agent. When memory runs out, the kernel should kill the workload first, and the agent last. */
const OOM_SCORE_ADJ = -900;
/**
 * If the agent may not lower its own OOM score, it adds this number to the score of its children. Raising a score needs
 * no privilege (proc(5)).
 */
const OOM_SCORE_DISTANCE = 900;
/**
 * Added to the workload's OOM score to get the score of other commands, so that the kernel kills them first: killing
 * the workload ends the sandbox. 500 points count as much as half of the guest's memory.
 */
const COMMAND_DISTANCE = 500;
const MAX_OOM_SCORE_ADJ = 1000;
/**
 * Lowest score for a child. It is above -1000, because the kernel never kills a process with -1000, and panics if only
 * such processes are left.
 */
const LEAST_CHILD_SCORE_ADJ = -999;
const OOM_SCORE_FILE = "/proc/self/oom_score_adj";
/**
 * Nice value of the agent, so that it responds in time while the workload is busy. A lower value could starve the
 * workload.
 */
const PRIORITY = -5;

/** OOM scores and scheduling priority for the agent's children. */
export interface ChildPriority {
  /** OOM score of the workload. It is higher than the agent's score; undefined if unknown. */
  readonly workloadOomScoreAdj: number | undefined;
  /** Score for commands, hooks and ready_cmd: higher than the workload's. */
  readonly commandOomScoreAdj: number | undefined;
  /** The agent's priority before the agent raised it; undefined if the agent did not raise it. */
  readonly priority: number | undefined;
}

/**
 * Lowers the agent's OOM score, and returns oom_score_adj for the workload. Usually the workload gets the score that
 * the agent had before the launcher or this function lowered it. If the agent may not lower its score, the workload
 * gets a higher one instead.
 */
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
    // Lowering the score requires CAP_SYS_RESOURCE.
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
 * Protects the agent from starvation, from the OOM killer, and from reads of its memory, as far as its privileges
 * allow. Call it once, early. Forbids dumps last: this makes root the owner of /proc/self, so afterwards the agent may
 * no longer be able to change its OOM score.
 *
 * @param containerOomScoreAdj oom_score_adj before the launcher lowered it; undefined if the launcher did not lower it
 */
export function protectSelf(
  addon: Pick<Addon, "forbidDumps" | "shortenSlice">,
  containerOomScoreAdj: number | undefined,
): ChildPriority {
  const workloadOomScoreAdj = protectFromOomKiller(containerOomScoreAdj);
  const ofCommands = Math.min((workloadOomScoreAdj ?? 0) + COMMAND_DISTANCE, MAX_OOM_SCORE_ADJ);
  const priority = raisePriority();
  // Kernels before Linux 6.12 have no short time slice. Without one, the agent responds more slowly on a busy guest.
  addon.shortenSlice();
  addon.forbidDumps();
  const commandOomScoreAdj = workloadOomScoreAdj === undefined ? undefined : ofCommands;
  return { workloadOomScoreAdj, commandOomScoreAdj, priority };
}
