import type { ChunkBuffer, ChunkBuffers } from "./chunk-buffers.ts";

/** One chunk is on its way while the next is read. */
const IN_FLIGHT = 2;

/** The buffers of one transfer. */
export class Outbox {
  readonly #buffers: ChunkBuffers;
  #inFlight = 0;
  #wake: (() => void) | undefined;

  constructor(buffers: ChunkBuffers) {
    this.#buffers = buffers;
  }

  /** Resolves with a buffer as soon as no more than one other is in flight. To be called again only after that. */
  async take(wantedBytes: number): Promise<ChunkBuffer> {
    if (this.#inFlight === IN_FLIGHT) {
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
