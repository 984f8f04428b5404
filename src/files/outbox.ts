import type { BufferPool, LentBuffer } from "../domain/index.ts";

/** Chunks in flight: one is sent while the next is read. */
const IN_FLIGHT = 2;
/** While memory is tight the next is read only after the last was sent. */
const IN_FLIGHT_TIGHT = 1;

/** Bounds the buffers of one transfer that are in flight. */
export class Outbox {
  readonly #buffers: BufferPool;
  #inFlight = 0;
  #wake: (() => void) | undefined;

  constructor(buffers: BufferPool) {
    this.#buffers = buffers;
  }

  /** Resolves with a buffer as soon as few enough others are in flight. Call it again only after that. */
  async take(wantedBytes: number): Promise<LentBuffer> {
    while (this.#inFlight >= (this.#buffers.tight ? IN_FLIGHT_TIGHT : IN_FLIGHT)) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    this.#inFlight += 1;
    const lent = this.#buffers.lend(wantedBytes);
    return {
      bytes: lent.bytes,
      giveBack: (): void => {
        lent.giveBack();
        this.#inFlight -= 1;
        this.#wake?.();
        this.#wake = undefined;
      },
    };
  }
}
