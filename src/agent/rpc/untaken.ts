/** Bytes that dismissed calls together may hold until their clients take them. */
const UNTAKEN_LIMIT_BYTES: number = 4 * 1024 * 1024;

/** Calls that ended unread: each holds the rest of a message, and its status. Over the limit the oldest is dropped. */
export class Untaken {
  readonly #held = new Map<object, { readonly sizeBytes: number; readonly giveWay: () => void }>();
  #totalBytes = 0;

  /** @param giveWay drops what the call holds; then call `remove`, as at any other end of the call */
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
