import { freemem, totalmem } from "node:os";
import type { CgroupFolder } from "./cgroup-folder.ts";

/**
 * What the session leaves of the guest's memory: the agent's code, which the kernel would drop and read again at each
 * call, and room for calls. Without it Health waited up to 50 s in a full guest of 128 MB (docs/agent/reliability.md).
 */
const RESERVE_BYTES = 16 * 2 ** 20;
/** A balloon or hotplug changes the guest's memory: how often it is polled, at most. */
const POLL_EVERY_MS = 1_000;

/** Of node:os: bytes of the guest's memory that are available (MemAvailable of proc_meminfo(5)), and all. */
type GuestMemory = Readonly<Record<"freemem" | "totalmem", () => number>>;

/**
 * The limit of what workload and commands use together (memory.max of cgroups(7)). At the limit the kernel kills one of
 * them, or fails a write into a file system in memory. Nothing where the agent is not in a root cgroup.
 */
export class SessionMemory {
  readonly #folder: CgroupFolder;
  readonly #guest: GuestMemory;
  readonly #pollEveryMs: number;
  /** What was in use before the session began, the agent's start included, and what is kept for the agent. */
  readonly #othersBytes: number;
  #totalBytes = 0;
  #polledMs = Number.NEGATIVE_INFINITY;

  /** @param folder of the session's cgroup, in which nobody lives yet */
  constructor(folder: CgroupFolder, guest: GuestMemory = { freemem, totalmem }, pollEveryMs: number = POLL_EVERY_MS) {
    const availableBytes = guest.freemem();
    this.#folder = folder;
    this.#guest = guest;
    this.#pollEveryMs = pollEveryMs;
    this.#othersBytes = guest.totalmem() - availableBytes + RESERVE_BYTES;
    // A smaller guest cannot be divided: its workload gets what it can, and the agent is slow.
    if (availableBytes < 2 * RESERVE_BYTES) this.#polledMs = Number.POSITIVE_INFINITY;
    else this.#limit();
  }

  /** Makes the limit follow the guest's memory. Call it whenever there is work. */
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
    // Below what is in use, the write would keep this thread until the killer has made room.
    if (limitBytes < Number(this.#folder.read("memory.current") ?? 0)) return;
    this.#totalBytes = totalBytes;
    const refused = this.#folder.write("memory.max", String(limitBytes));
    if (refused !== undefined) this.#polledMs = Number.POSITIVE_INFINITY;
  }
}
