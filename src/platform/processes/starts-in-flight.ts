/** Longest wait: a start may hang for ever, on a dead file system. */
const WAIT_LIMIT_MS = 500;

/**
 * Children between clone and execve. Each holds copies of every descriptor that the agent had open at its clone, the
 * writing ends of other children's pipes among them: while one is in flight a pipe can look held that nobody holds.
 */
export class StartsInFlight {
  readonly #starts: Set<Promise<unknown>> = new Set();

  /** Counts a start as in flight until it is settled. */
  track<Value>(start: Promise<Value>): Promise<Value> {
    this.#starts.add(start);
    const forget = (): void => void this.#starts.delete(start);
    start.then(forget, forget);
    return start;
  }

  /** Resolves when those that are in flight now have settled; undefined: there are none. Never rejects. */
  settled(): Promise<void> | undefined {
    if (this.#starts.size === 0) return undefined;
    return new Promise((resolve) => {
      const limit = setTimeout(resolve, WAIT_LIMIT_MS);
      void Promise.allSettled(this.#starts).then(() => {
        clearTimeout(limit);
        resolve();
      });
    });
  }
}
