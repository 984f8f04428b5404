/** What calls that were dismissed may hold together until their clients take it. */
const UNTAKEN_LIMIT_BYTES: number = 4 * 1024 * 1024;

/**
 * Calls that have ended while their clients did not read: each holds the rest of one message, behind which its status waits
 * for as long as the client likes. Over the limit the oldest gives way.
 */
export class Untaken {
  readonly #held = new Map<object, { readonly sizeBytes: number; readonly giveWay: () => void }>();
  #totalBytes = 0;

  /** @param giveWay lets go of what the call holds; `remove` is to be called then, as at any other end of it */
  add(call: object, sizeBytes: number, giveWay: () => void): void {
    this.#held.set(call, { sizeBytes, giveWay });
    this.#totalBytes += sizeBytes;
    for (const [oldest, held] of this.#held) {
      if (this.#totalBytes <= UNTAKEN_LIMIT_BYTES) return;
      this.remove(oldest);
      held.giveWay();
    }
  }

  /** The call holds nothing any more. Does nothing for one that was not added. */
  remove(call: object): void {
    this.#totalBytes -= this.#held.get(call)?.sizeBytes ?? 0;
    this.#held.delete(call);
  }
}
