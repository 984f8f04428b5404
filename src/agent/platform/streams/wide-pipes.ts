import type { Addon } from "../../native/index.ts";

/** With 64 KiB agent and command wake each other: 1.7 times the CPU time. 1 MiB is no better (decision 0025). */
const WIDE_BYTES = 256 * 1024;
/** Most wide pipes at once: their content is the guest's memory, and the kernel limits a user's pipe pages. */
const LIMIT = 32;

/** Widens the pipes of commands that move much. The others keep what the kernel gave them. */
export class WidePipes {
  readonly #addon: Addon;
  /** Descriptors of the pipes that were to be widened. */
  readonly #wide = new Set<number>();

  constructor(addon: Addon) {
    this.#addon = addon;
  }

  /**
   * Call it for a pipe that was full. True: it has more room now. Each pipe gets it once at most, and not on every
   * kernel.
   */
  widen(fd: number): boolean {
    if (this.#wide.has(fd) || this.#wide.size >= LIMIT) return false;
    this.#wide.add(fd);
    return this.#addon.widenPipe(fd, WIDE_BYTES) > 0;
  }

  /** Call it before a pipe's descriptor is closed. */
  leave(fd: number): void {
    this.#wide.delete(fd);
  }
}
