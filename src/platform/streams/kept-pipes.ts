import { closeSync } from "node:fs";
import { constants } from "node:os";

import { KEPT_PIPES_LIMIT } from "../../domain/index.ts";
import { type Addon, type FdWatch, READABLE } from "../../native/index.ts";

/** What a pipe holds. */
const BUFFER_BYTES = 64 * 1024;
/** Pause after a pipe had something, so that one who floods it costs little: 6 MB/s at most are taken from each. */
const REST_MS = 10;

/**
 * Reads what background processes of ended commands go on writing to the commands' pipes, and drops it: without a reader
 * they would die of SIGPIPE at their next line. A pipe is closed when its last writer has gone; beyond KEPT_PIPES_LIMIT the
 * one that was kept longest is closed on its writers. Costs nothing while nobody writes.
 */
export class KeptPipes {
  readonly #addon: Addon;
  readonly #onGivenUp: () => void;
  /** The oldest first: a set keeps the order in which its members came. */
  readonly #kept: Set<FdWatch> = new Set();
  /** Those that had something and wait for the end of the pause. */
  readonly #resting: Set<FdWatch> = new Set();
  /** One for all, while any is kept: nobody looks at what is in it. */
  #buffer: Uint8Array | undefined;
  #pause: NodeJS.Timeout | undefined;

  constructor(addon: Addon, onGivenUp: () => void = () => {}) {
    this.#addon = addon;
    this.#onGivenUp = onGivenUp;
  }

  /** Takes the reading end of a pipe over, which must not block. */
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
