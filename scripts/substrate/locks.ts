/** Lets one action at a time at each thing. */
export class Locks {
  readonly #last = new Map<string, Promise<void>>();

  /** Runs the action when all that were asked for before are over, however they ended. */
  async run<T>(key: string, action: () => Promise<T>): Promise<T> {
    const before = this.#last.get(key);
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#last.set(key, promise);
    await before;
    try {
      return await action();
    } finally {
      if (this.#last.get(key) === promise) this.#last.delete(key);
      resolve();
    }
  }
}
