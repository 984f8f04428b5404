import { setImmediate as nextTurn } from "node:timers/promises";

/** Delay of signals and timers. A turn costs far less than this much work. */
const LONGEST_TURN_MS = 50;

/**
 * Turns of the event loop for a loop over synchronous work, such as thousands of small files: awaiting promises that
 * are settled gives it none, and signals and timers would wait for the end.
 */
export class EventLoopTurns {
  #begunMs = performance.now();

  /** This turn has taken long enough. */
  get isDue(): boolean {
    return performance.now() - this.#begunMs >= LONGEST_TURN_MS;
  }

  /** Resolves in the next turn. */
  async next(): Promise<void> {
    await nextTurn();
    this.#begunMs = performance.now();
  }
}
