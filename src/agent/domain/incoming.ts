/** Bytes that somebody else owns. */
export interface LentBytes {
  readonly bytes: Uint8Array;
  /** Gives them back; call it once, when nothing uses them any more. */
  release(): void;
}

/**
 * What a client sends, one after another. Calls `take` with each and waits for the promise that it may return, which
 * never rejects. Calls `over` last: with why the client broke off, or with what `take` threw.
 */
export type Incoming<Item> = (
  take: (item: Item) => Promise<void> | undefined,
  over: (failure: Error | undefined) => void,
) => void;
