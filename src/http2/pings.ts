import type { Output } from "./output.ts";

const PING_BYTES = 8;

/** PINGs that the peer has not answered. */
export class Pings {
  readonly #output: Output;
  readonly #unanswered = new Map<number, () => void>();
  #number = 0;

  constructor(output: Output) {
    this.#output = output;
  }

  /** Asks for a sign of life; calls back when it comes. */
  send(answered: () => void): void {
    const number = ++this.#number;
    this.#unanswered.set(number, answered);
    const bytes = Buffer.alloc(PING_BYTES);
    bytes.writeUInt32BE(number, 4);
    this.#output.ping(0, bytes);
  }

  /** An answer has come. One to nothing that was asked has no meaning. */
  answered(payload: Buffer): void {
    const number = payload.readUInt32BE(4);
    const answered = this.#unanswered.get(number);
    this.#unanswered.delete(number);
    answered?.();
  }
}
