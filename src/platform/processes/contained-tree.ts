import { constants } from "node:os";
import { setTimeout as delay } from "node:timers/promises";

import type { Cgroup } from "./cgroup.ts";
import type { ProcessTree } from "./process-tree.ts";
import type { WalkedTree } from "./walked-tree.ts";

const { SIGKILL } = constants.signals;
const LONGEST_WAIT_MS = 50;

/**
 * A tree in a cgroup of its own, which no double fork and no session leaves. A privileged process can move itself to
 * another cgroup: whom a walk finds belongs to the tree as well.
 */
export class ContainedTree implements ProcessTree {
  readonly #cgroup: Cgroup;
  readonly #walked: WalkedTree;

  constructor(cgroup: Cgroup, walked: WalkedTree) {
    this.#cgroup = cgroup;
    this.#walked = walked;
  }

  signal(signal: number): void {
    this.#walked.signal(signal, () => new Set(this.#cgroup.members()));
  }

  async kill(): Promise<void> {
    for (let waitMs = 1; !this.#killOnce(); waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS)) await delay(waitMs);
    await this.#walked.kill();
  }

  oomKilled(): boolean {
    return this.#cgroup.oomKilled();
  }

  release(): void {
    this.#cgroup.release();
  }

  /** True when nothing is left alive in the cgroup. */
  #killOnce(): boolean {
    // Without a descriptor to spare: the group needs none.
    if (!this.#cgroup.kill()) this.#walked.signal(SIGKILL);
    return !this.#cgroup.populated();
  }
}
