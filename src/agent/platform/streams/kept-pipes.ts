import { closeSync } from "node:fs";
import { constants } from "node:os";

import { KEPT_PIPES_LIMIT } from "../../domain/index.ts";
import { type Addon, type FdWatch, READABLE } from "../../native/index.ts";

/** The capacity of a pipe. */
const BUFFER_BYTES = 64 * 1024;
/** Pause after each read, so that a flooded pipe costs little: at most 6 MB/s are read from it. */
const REST_MS = 10;

/**
 * Reads and drops what background processes write to the pipes of ended commands: without a reader SIGPIPE would kill
 * them at their next line. Closes a pipe when its last writer has gone; beyond KEPT_PIPES_LIMIT pipes it closes the
 * oldest. Costs nothing while nobody writes.
 */
export class KeptPipes {
  readonly #addon: Addon;
  readonly #onGivenUp: () => void;
  /** The oldest first: a set keeps the order in which its members came. */
  readonly #kept: Set<FdWatch> = new Set();
  /** Pipes that were read and wait for the end of the pause. */
  readonly #resting: Set<FdWatch> = new Set();
  /** One for all pipes, as its content is dropped; allocated while any pipe is kept. */
  #buffer: Uint8Array | undefined;
  #pause: NodeJS.Timeout | undefined;

  constructor(addon: Addon, onGivenUp: () => void = () => {}) {
    this.#addon = addon;
    this.#onGivenUp = onGivenUp;
  }

  /** Takes over a pipe's reading end, which must be non-blocking. */
  keep(fd: number): void {
    let watch: FdWatch;
    try {
      watch = new this.#addon.FdWatch(fd, () => this.#drop(watch, fd));
    } catch {
      closeSync(fd);
      return;
    }
    const [oldest] = this.#kept;
    if (oldest !== undefined && this.#kept.size >= KEPT_PIPES_LIMIT) {
      this.#close(oldest);
      this.#onGivenUp();
    }
    this.#kept.add(watch);
    watch.set(READABLE);
  }

  #drop(watch: FdWatch, fd: number): void {
    this.#buffer ??= new Uint8Array(BUFFER_BYTES);
    const count = this.#addon.read(fd, this.#buffer, 0, BUFFER_BYTES);
    if (count > 0) this.#rest(watch);
    else if (count !== -constants.errno.EAGAIN) this.#close(watch);
  }

  #rest(watch: FdWatch): void {
    watch.set(0);
    this.#resting.add(watch);
    if (this.#pause !== undefined) return;
    this.#pause = setTimeout(() => {
      this.#pause = undefined;
      for (const rested of this.#resting) rested.set(READABLE);
      this.#resting.clear();
    }, REST_MS);
  }

  #close(watch: FdWatch): void {
    this.#kept.delete(watch);
    this.#resting.delete(watch);
    watch.close();
    if (this.#kept.size === 0) this.#buffer = undefined;
  }
}
