import { closeSync } from "node:fs";
import { constants } from "node:os";

import { KEPT_PIPES_LIMIT } from "../../domain/index.ts";
import { type Addon, type FdWatch, READABLE } from "../../native/index.ts";

/** Size of a read: a full pipe of the kernel's default capacity (pipe(7)) is emptied by one read. */
const BUFFER_BYTES = 64 * 1024;
/** Pause after each read, which limits the cost of a flooded pipe to 6 MB/s. */
const PAUSE_MS = 10;

/**
 * Reads and discards what background processes write to the pipes of ended commands. Without a reader, SIGPIPE would
 * kill them. If there are more than KEPT_PIPES_LIMIT pipes, closes the oldest.
 */
export class KeptPipes {
  readonly #addon: Addon;
  readonly #onEvicted: () => void;
  /** All kept pipes, the oldest first: a set keeps the order of insertion. */
  readonly #kept: Set<FdWatch> = new Set();
  /** Pipes that were just read. For a short time they are not watched. */
  readonly #paused: Set<FdWatch> = new Set();
  /** A buffer that all pipes share, because the content is discarded. Allocated while at least one pipe is kept. */
  #buffer: Uint8Array | undefined;
  #pause: NodeJS.Timeout | undefined;

  constructor(addon: Addon, onEvicted: () => void = () => {}) {
    this.#addon = addon;
    this.#onEvicted = onEvicted;
  }

  /** Takes ownership of the read end of a pipe, which must be non-blocking. */
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
      this.#onEvicted();
    }
    this.#kept.add(watch);
    watch.set(READABLE);
  }

  #drop(watch: FdWatch, fd: number): void {
    this.#buffer ??= new Uint8Array(BUFFER_BYTES);
    const count = this.#addon.read(fd, this.#buffer, 0, BUFFER_BYTES);
    if (count > 0) this.#pauseReading(watch);
    else if (count !== -constants.errno.EAGAIN) this.#close(watch);
  }

  #pauseReading(watch: FdWatch): void {
    watch.set(0);
    this.#paused.add(watch);
    if (this.#pause !== undefined) return;
    this.#pause = setTimeout(() => {
      this.#pause = undefined;
      for (const rested of this.#paused) rested.set(READABLE);
      this.#paused.clear();
    }, PAUSE_MS);
  }

  #close(watch: FdWatch): void {
    this.#kept.delete(watch);
    this.#paused.delete(watch);
    watch.close();
    if (this.#kept.size === 0) this.#buffer = undefined;
  }
}
