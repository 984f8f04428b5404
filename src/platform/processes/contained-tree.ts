import { setTimeout as delay } from "node:timers/promises";

import type { Addon } from "../../native/index.ts";
import type { Cgroup } from "./cgroup.ts";
import type { ProcessTree } from "./process-tree.ts";
import type { WalkedTree } from "./walked-tree.ts";

const LONGEST_WAIT_MS = 50;

/**
 * A tree in a cgroup of its own, which no double fork and no session leaves. A privileged process can move itself to
 * another cgroup: whom a walk finds belongs to the tree as well.
 */
export class ContainedTree implements ProcessTree {
  readonly #addon: Pick<Addon, "kill">;
  readonly #cgroup: Cgroup;
  readonly #walked: WalkedTree;

  constructor(addon: Pick<Addon, "kill">, cgroup: Cgroup, walked: WalkedTree) {
    this.#addon = addon;
    this.#cgroup = cgroup;
    this.#walked = walked;
  }

  signal(signal: number): void {
    const contained = this.#cgroup.members();
    this.#walked.signal(signal, new Set(contained));
    for (const pid of contained) this.#addon.kill(pid, signal);
  }

  async kill(): Promise<void> {
    this.#cgroup.kill();
    for (let waitMs = 1; this.#cgroup.populated(); waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS)) await delay(waitMs);
    await this.#walked.kill();
  }

  oomKilled(): boolean {
    return this.#cgroup.oomKilled();
  }

  release(): void {
    this.#cgroup.release();
  }
}
