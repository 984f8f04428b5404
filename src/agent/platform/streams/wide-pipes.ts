import type { Addon } from "../../native/index.ts";

/**
 * Capacity of a wide (enlarged) pipe. With the kernel's default of 64 KiB, the agent and a command with much output use
 * 1.7 times as much CPU time. A pipe of 1 MiB saves no more than this one (decision 0025).
 */
const WIDE_BYTES = 256 * 1024;
/**
 * Largest number of wide pipes. It is limited because the content of pipes is guest memory, and because the kernel
 * limits the size of all pipes of a user.
 */
const LIMIT = 32;

/** Enlarges the pipes of commands with much output. Other pipes keep the kernel's default size. */
export class WidePipes {
  readonly #addon: Addon;
  /** Descriptors of the pipes that were enlarged, or that the kernel has refused to enlarge. */
  readonly #wide = new Set<number>();

  constructor(addon: Addon) {
    this.#addon = addon;
  }

  /**
   * Call it for a pipe that was full. Returns true if the pipe was enlarged, which happens at most once per pipe. The
   * kernel may refuse.
   */
  widen(fd: number): boolean {
    if (this.#wide.has(fd) || this.#wide.size >= LIMIT) return false;
    this.#wide.add(fd);
    return this.#addon.widenPipe(fd, WIDE_BYTES) > 0;
  }

  /** Call it before the descriptor of a pipe is closed. */
  forget(fd: number): void {
    this.#wide.delete(fd);
  }
}
