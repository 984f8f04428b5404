/** Bytes that all waiting connections together pass on in one turn of the event loop: a few milliseconds at worst. */
const TURN_BYTES = 8 * 1024;

/** Something that reads a piece when its turn comes. */
export interface Paced {
  /** Reads a piece if there is one. Returns its length in bytes. */
  handOn(): number;
}

/**
 * Lets connections take turns. Node reads 64 KiB of each socket and handles all of it before anything else runs. So 60
 * connections full of calls that are cancelled at once would stop the agent for seconds.
 */
export class Pace {
  /** In the order of their turns. */
  readonly #waiting = new Set<Paced>();
  #scheduled = false;

  /** Queues a connection: its next piece is read in a later turn. */
  enqueue(paced: Paced): void {
    this.#waiting.add(paced);
    this.#schedule();
  }

  /** Takes a connection out of the queue. */
  leave(paced: Paced): void {
    this.#waiting.delete(paced);
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => this.#turn());
  }

  #turn(): void {
    this.#scheduled = false;
    let left = TURN_BYTES;
    // A connection with more to read is at the end of the set again, where this loop meets it.
    try {
      for (const paced of this.#waiting) {
        this.#waiting.delete(paced);
        left -= paced.handOn();
        if (left <= 0) break;
      }
    } finally {
      // Also after a bug of one of them.
      if (this.#waiting.size > 0) this.#schedule();
    }
  }
}
