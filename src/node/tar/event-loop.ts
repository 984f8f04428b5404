import { setImmediate as nextTurn } from "node:timers/promises";

/**
 * How long synchronous work may delay signals and timers. A turn of the event loop takes far less time than this, so
 * the turns hardly slow the work down.
 */
const LONGEST_TURN_MS = 50;

/**
 * Lets a loop of synchronous work, such as over thousands of small files, run the event loop in between. Awaiting
 * promises that are settled already is not enough: signals and timers would wait for the end of the loop.
 */
export class EventLoopTurns {
  #begunMs = performance.now();

  /** Whether the current turn has taken so long that the caller must await `next`. */
  get isDue(): boolean {
    return performance.now() - this.#begunMs >= LONGEST_TURN_MS;
  }

  /** Resolves in the next turn of the event loop. */
  async next(): Promise<void> {
    await nextTurn();
    this.#begunMs = performance.now();
  }
}
