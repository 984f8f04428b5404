import { type Addon, FAILED, type FdWatch } from "../../native/index.ts";

/** Watches the descriptor of a stream. Owns the descriptor. */
export class StreamWatch {
  readonly #watch: FdWatch;
  readonly #onBug: () => void;
  #mask = 0;

  /**
   * @param onError called after an internal error in `onEvents` or `run`, to end the stream; the process logs the error
   * @throws Error if the descriptor cannot be watched; the caller then still owns it
   */
  constructor(addon: Addon, fd: number, onEvents: (events: number) => void, onError: () => void) {
    this.#onBug = onError;
    this.#watch = new addon.FdWatch(fd, (events) => {
      // FAILED means that the addon has already stopped the watch.
      if ((events & FAILED) !== 0) this.#mask = 0;
      this.run(() => onEvents(events));
    });
  }

  /** The bits of the events that are watched now (see `FdWatch`); 0 if none are watched. */
  get mask(): number {
    return this.#mask;
  }

  /** Does nothing if the mask is the current one, because stopping a stopped watch would also cost a system call. */
  set(mask: number): void {
    if (mask === this.#mask) return;
    this.#mask = mask;
    this.#watch.set(mask);
  }

  /** Runs `entry`. If it throws, ends this stream and rethrows the error. */
  run(entry: () => void): void {
    try {
      entry();
    } catch (error) {
      this.#onBug();
      throw error;
    }
  }

  close(): void {
    this.#watch.close();
  }
}
