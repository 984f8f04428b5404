/** Longest wait: a start may hang for ever, on a dead file system. */
const WAIT_LIMIT_MS = 500;

/**
 * Children between clone and execve. Each holds copies of every descriptor that the agent had open at its clone, the
 * writing ends of other children's pipes among them: while one is in flight a pipe can look held that nobody holds.
 */
export class StartsInFlight {
  /** Numbers of those in flight, the oldest first: a set keeps the order in which its members came. */
  readonly #starts: Set<number> = new Set();
  /** Who waits for all starts up to a number, in the order of the numbers. */
  readonly #waiting: Set<{ readonly last: number; readonly done: () => void }> = new Set();
  #count = 0;

  /** Counts a start as in flight until it is settled. */
  track<Value>(start: Promise<Value>): Promise<Value> {
    const number = ++this.#count;
    this.#starts.add(number);
    const forget = (): void => {
      this.#starts.delete(number);
      this.#tell();
    };
    start.then(forget, forget);
    return start;
  }

  /** Resolves when those that are in flight now have settled; undefined: there are none. Never rejects. */
  settled(): Promise<void> | undefined {
    if (this.#starts.size === 0) return undefined;
    return new Promise((resolve) => {
      const waiting = {
        last: this.#count,
        done: (): void => {
          clearTimeout(limit);
          this.#waiting.delete(waiting);
          resolve();
        },
      };
      const limit = setTimeout(waiting.done, WAIT_LIMIT_MS);
      this.#waiting.add(waiting);
    });
  }

  /** Looks at no more than it tells: with hundreds of commands under way anything else would grow with their square. */
  #tell(): void {
    const [oldest = Infinity] = this.#starts;
    for (const { last, done } of this.#waiting) {
      if (last >= oldest) return;
      done();
    }
  }
}
