import { readFileSync, writeFileSync } from "node:fs";
import { getPriority, setPriority } from "node:os";

import type { Addon } from "../native/index.ts";

/** Low enough that the workload goes first when memory runs out; the kernel still may take the agent as its last resort. */
const OOM_SCORE_ADJ = -900;
const OOM_SCORE_FILE = "/proc/self/oom_score_adj";
/** Answers come in time beside a busy workload. More would let the agent starve it. */
const PRIORITY = -5;

/** What the agent had before it protected itself, and its children are to have. */
export interface Standing {
  /** Undefined: the agent's own was not changed. */
  readonly oomScoreAdj?: string;
  readonly priority?: number;
}

function protectFromOomKiller(): string | undefined {
  try {
    const before = readFileSync(OOM_SCORE_FILE, "utf8").trim();
    if (Number(before) <= OOM_SCORE_ADJ) return undefined;
    writeFileSync(OOM_SCORE_FILE, String(OOM_SCORE_ADJ));
    return before;
  } catch {
    return undefined;
  }
}

/** That of this thread, from which threads started later have theirs. */
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
 * Makes the process hard to starve, kill or read for others in the guest, as far as its privileges go. Call it once, early.
 * Dumps are forbidden last: without privileges /proc/self belongs to root from then on.
 */
export function protectSelf(addon: Pick<Addon, "forbidDumps">): Standing {
  const oomScoreAdj = protectFromOomKiller();
  const priority = raisePriority();
  addon.forbidDumps();
  return { ...(oomScoreAdj !== undefined && { oomScoreAdj }), ...(priority !== undefined && { priority }) };
}
