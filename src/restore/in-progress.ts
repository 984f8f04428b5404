import { unlessAborted } from "../domain/index.ts";

/** Counts what is in progress, and lets others wait until nothing is. */
export class InProgress {
  #count = 0;
  #none: PromiseWithResolvers<void> = Promise.withResolvers<void>();

  /** Something begins; the returned function ends it, once. */
  begin(): () => void {
    this.#count++;
    let ended = false;
    return () => {
      if (ended) return;
      ended = true;
      this.#count--;
      if (this.#count > 0) return;
      this.#none.resolve();
      this.#none = Promise.withResolvers<void>();
    };
  }

  /** Resolves at once or when nothing is in progress any more. Rejects with the signal's reason. */
  async none(signal: AbortSignal): Promise<void> {
    while (this.#count > 0) await unlessAborted(this.#none.promise, signal);
  }
}
