import { readFileSync, writeFileSync } from "node:fs";
import { getPriority, setPriority } from "node:os";

import type { Addon } from "../native/index.ts";

/** When memory runs out the kernel kills the workload first, and the agent only as a last resort. */
const OOM_SCORE_ADJ = -900;
/** How much higher the children's score is where the agent may not lower its own: raising needs no right (proc(5)). */
const OOM_SCORE_DISTANCE = 900;
const MAX_OOM_SCORE_ADJ = 1000;
const OOM_SCORE_FILE = "/proc/self/oom_score_adj";
/** Enough for timely answers beside a busy workload. More could starve the workload. */
const PRIORITY = -5;

/** OOM score and priority that the agent's children get. */
export interface Standing {
  /** Above the agent's. Undefined: it is not known. */
  readonly oomScoreAdj?: number;
  /** From before the agent changed its own. Undefined: it did not. */
  readonly priority?: number;
}

/** Returns the children's score: the one from before, or a higher one if the agent may not lower its own. */
function protectFromOomKiller(): number | undefined {
  let before: number;
  try {
    before = Number(readFileSync(OOM_SCORE_FILE, "utf8"));
  } catch {
    return undefined;
  }
  try {
    if (before > OOM_SCORE_ADJ) {
      writeFileSync(OOM_SCORE_FILE, String(OOM_SCORE_ADJ));
      return before;
    }
  } catch {
    // Without CAP_SYS_RESOURCE.
  }
  return Math.min(before + OOM_SCORE_DISTANCE, MAX_OOM_SCORE_ADJ);
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
 */
export function protectSelf(addon: Pick<Addon, "forbidDumps">): Standing {
  const oomScoreAdj = protectFromOomKiller();
  const priority = raisePriority();
  addon.forbidDumps();
  return { ...(oomScoreAdj !== undefined && { oomScoreAdj }), ...(priority !== undefined && { priority }) };
}
