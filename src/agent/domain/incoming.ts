/** Bytes in memory that has another owner, such as a buffer pool. */
export interface BorrowedBytes {
  readonly bytes: Uint8Array;
  /** Returns the memory to its owner. */
  release(): void;
}

/**
 * A buffer that must be released. Only the first call of release() has an effect. An object with a closure instead of
 * this class would take six times the memory.
 */
export class BorrowedBuffer implements BorrowedBytes {
  readonly bytes: Uint8Array;
  #back: ((bytes: Uint8Array) => void) | undefined;

  /** @param back a function that gets the bytes when they are released */
  constructor(bytes: Uint8Array, back: (bytes: Uint8Array) => void) {
    this.bytes = bytes;
    this.#back = back;
  }

  release(): void {
    const back = this.#back;
    this.#back = undefined;
    back?.(this.bytes);
  }
}

/**
 * A stream of items from a client. Passes each item to `onItem`. If `onItem` returns a promise, the next item waits for
 * it; the promise must not reject. At the end calls `onEnd`, with an error if the client aborted or `onItem` threw.
 */
export type Incoming<Item> = (
  onItem: (item: Item) => Promise<void> | undefined,
  onEnd: (failure: Error | undefined) => void,
) => void;
