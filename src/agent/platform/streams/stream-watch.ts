import { type Addon, FAILED, type FdWatch } from "../../native/index.ts";

/** Watches the descriptor of a stream. Owns it. */
export class StreamWatch {
  readonly #watch: FdWatch;
  readonly #onBug: () => void;
  #mask = 0;

  /**
   * @param onBug ends the stream after a bug in `onEvents`, or in what `run` ran: the process logs it
   * @throws Error where the descriptor cannot be watched; the caller then still owns it
   */
  constructor(addon: Addon, fd: number, onEvents: (events: number) => void, onBug: () => void) {
    this.#onBug = onBug;
    this.#watch = new addon.FdWatch(fd, (events) => {
      // An error ends the watch.
      if ((events & FAILED) !== 0) this.#mask = 0;
      this.run(() => onEvents(events));
    });
  }

  /** Events that are watched for. */
  get mask(): number {
    return this.#mask;
  }

  /** Sets the watch only if it changes: stopping one costs a system call, even if there is none. */
  set(mask: number): void {
    if (mask === this.#mask) return;
    this.#mask = mask;
    this.#watch.set(mask);
  }

  /** Runs what the event loop calls. */
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
