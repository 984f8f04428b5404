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

  /** Sends a PING; calls back when its answer comes. */
  send(answered: () => void): void {
    const number = ++this.#number;
    this.#unanswered.set(number, answered);
    const bytes = Buffer.alloc(PING_BYTES);
    bytes.writeUInt32BE(number, 4);
    this.#output.ping(0, bytes);
  }

  /** Handles an answer. Ignores one to no PING of ours. */
  answered(payload: Buffer): void {
    const number = payload.readUInt32BE(4);
    const answered = this.#unanswered.get(number);
    this.#unanswered.delete(number);
    answered?.();
  }
}
