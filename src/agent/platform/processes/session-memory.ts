import { freemem, totalmem } from "node:os";
import type { CgroupDirectory } from "./cgroup-directory.ts";

/**
 * Memory that the session must leave free for calls and for the agent's code. Without it, the kernel reads this code
 * again for each call: in a full guest of 128 MB, Health took up to 50 s (docs/agent/reliability.md).
 */
const RESERVE_BYTES = 16 * 2 ** 20;
/** How often to poll the guest's memory, which a balloon or hotplug may change. */
const POLL_EVERY_MS = 1_000;

/** Functions of node:os. `freemem` returns MemAvailable (proc_meminfo(5)). */
type GuestMemory = Readonly<Record<"freemem" | "totalmem", () => number>>;

/**
 * Limits the memory of the workload and all commands together (memory.max of cgroups(7)). At the limit the kernel kills
 * one of their processes, or a write to a tmpfs fails. Does nothing unless the agent is in a root cgroup.
 */
export class SessionMemory {
  readonly #directory: CgroupDirectory;
  readonly #guest: GuestMemory;
  readonly #pollEveryMs: number;
  /** Memory that the kernel, the agent and other processes used before the session began, plus RESERVE_BYTES. */
  readonly #othersBytes: number;
  #totalBytes = 0;
  #polledMs = Number.NEGATIVE_INFINITY;

  /** @param directory the session's cgroup, which must still be empty */
  constructor(
    directory: CgroupDirectory,
    guest: GuestMemory = { freemem, totalmem },
    pollEveryMs: number = POLL_EVERY_MS,
  ) {
    const availableBytes = guest.freemem();
    this.#directory = directory;
    this.#guest = guest;
    this.#pollEveryMs = pollEveryMs;
    this.#othersBytes = guest.totalmem() - availableBytes + RESERVE_BYTES;
    // In a very small guest nothing can be reserved: the workload may use all memory, and the agent becomes slow.
    if (availableBytes < 2 * RESERVE_BYTES) this.#polledMs = Number.POSITIVE_INFINITY;
    else this.#limit();
  }

  /** Adapts the limit to the guest's memory. Call it whenever the agent has work to do. */
  follow(): void {
    const nowMs = performance.now();
    if (nowMs < this.#polledMs + this.#pollEveryMs) return;
    this.#polledMs = nowMs;
    this.#limit();
  }

  #limit(): void {
    const totalBytes = this.#guest.totalmem();
    if (totalBytes === this.#totalBytes) return;
    const limitBytes = Math.max(totalBytes - this.#othersBytes, RESERVE_BYTES);
    // The limit is not set below the current usage, because the write would then block until the OOM killer has freed
    // enough memory.
    if (limitBytes < Number(this.#directory.read("memory.current") ?? 0)) return;
    this.#totalBytes = totalBytes;
    const refused = this.#directory.write("memory.max", String(limitBytes));
    if (refused !== undefined) this.#polledMs = Number.POSITIVE_INFINITY;
  }
}
