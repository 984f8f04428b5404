import type { Guest } from "../harness/guest.ts";
import type { Machine } from "../harness/machine.ts";
import type { Pair } from "./checks.ts";
import { type Control, observeClone, observeControl } from "./clone.ts";
import { drawTheSame } from "./draws.ts";
import type { Source } from "./source.ts";

/** Most attempts with a snapshot: the kernel's own reseed may fall between two draws. */
const MOST_SNAPSHOTS = 5;

/** Two clones without duties and two after their duties, of one snapshot. */
export interface Clones {
  readonly control: readonly [Control, Control];
  readonly pair: Pair;
  /** Number of snapshots taken. */
  readonly snapshots: number;
}

/** Clones a source, again until the clones are alike without duties. */
export async function clone(guest: Guest, source: Source, goOn?: (machine: Machine) => Promise<void>): Promise<Clones> {
  for (let snapshots = 1; ; snapshots++) {
    const file = await source.snapshot();
    const control = [await observeControl(guest, file), await observeControl(guest, file)] as const;
    const last = snapshots === MOST_SNAPSHOTS;
    if (!last && !controlIsAlike(control)) continue;
    const pair = [await observeClone(guest, file), await observeClone(guest, file, goOn)] as const;
    const alike = [pair[1].before, control[0].first].every((draws) => drawTheSame(pair[0].before, draws));
    if (last || alike) return { control, pair, snapshots };
  }
}

/** Without duties the clones draw the same, the first time and the second. */
function controlIsAlike([one, other]: Clones["control"]): boolean {
  return drawTheSame(one.first, other.first) && drawTheSame(one.second, other.second);
}
