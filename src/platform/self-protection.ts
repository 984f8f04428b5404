import { readFileSync, writeFileSync } from "node:fs";
import { getPriority, setPriority } from "node:os";

import type { Addon } from "../native/index.ts";

/** When memory runs out the kernel kills the workload first, and the agent only as a last resort. */
const OOM_SCORE_ADJ = -900;
const OOM_SCORE_FILE = "/proc/self/oom_score_adj";
/** Enough for timely answers beside a busy workload. More could starve the workload. */
const PRIORITY = -5;

/** OOM score and priority from before the agent changed its own, for its children. */
export interface Standing {
  /** Undefined: the agent's own was not changed. */
  readonly oomScoreAdj?: number;
  readonly priority?: number;
}

function protectFromOomKiller(): number | undefined {
  try {
    const before = Number(readFileSync(OOM_SCORE_FILE, "utf8"));
    if (before <= OOM_SCORE_ADJ) return undefined;
    writeFileSync(OOM_SCORE_FILE, String(OOM_SCORE_ADJ));
    return before;
  } catch {
    return undefined;
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
 * Protects the process from being starved, killed or read by others in the guest, as far as its privileges allow. Call it
 * once, early. Forbids dumps last: without privileges /proc/self belongs to root from then on.
 */
export function protectSelf(addon: Pick<Addon, "forbidDumps">): Standing {
  const oomScoreAdj = protectFromOomKiller();
  const priority = raisePriority();
  addon.forbidDumps();
  return { ...(oomScoreAdj !== undefined && { oomScoreAdj }), ...(priority !== undefined && { priority }) };
}
