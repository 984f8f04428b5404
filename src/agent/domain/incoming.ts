/** Bytes that somebody else owns. */
export interface LentBytes {
  readonly bytes: Uint8Array;
  /** Gives them back, when nothing uses them any more. */
  release(): void;
}

/** Bytes on loan; a second release does nothing. A class: an object with a closure takes six times the memory. */
export class Loan implements LentBytes {
  readonly bytes: Uint8Array;
  #back: ((bytes: Uint8Array) => void) | undefined;

  /** @param back takes the bytes when they are released */
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
 * What a client sends, one after another. Calls `take` with each and waits for the promise that it may return, which
 * never rejects. Calls `over` last: with why the client broke off, or with what `take` threw.
 */
export type Incoming<Item> = (
  take: (item: Item) => Promise<void> | undefined,
  over: (failure: Error | undefined) => void,
) => void;
