import type { FloodGuard } from "./limits.ts";
import type { Output } from "./output.ts";
import { Flag, frameSizeError, protocolError } from "./protocol.ts";

const PING_BYTES = 8;

/** PINGs in both directions, and those of ours that the peer has not answered. */
export class Pings {
  readonly #output: Output;
  readonly #floods: FloodGuard;
  readonly #unanswered = new Map<number, () => void>();
  #number = 0;

  constructor(output: Output, floods: FloodGuard) {
    this.#output = output;
    this.#floods = floods;
  }

  /** Sends a PING; calls back when its answer comes. */
  send(answered: () => void): void {
    const number = ++this.#number;
    this.#unanswered.set(number, answered);
    const bytes = Buffer.alloc(PING_BYTES);
    bytes.writeUInt32BE(number, 4);
    this.#output.ping(0, bytes);
  }

  /** Handles a PING, or the answer to ours. True: there is one to write. Throws ConnectionError for bad or too many. */
  receive(flags: number, streamId: number, payload: Buffer): boolean {
    if (streamId !== 0) throw protocolError("PING for a stream");
    if (payload.length !== PING_BYTES) throw frameSizeError("PING");
    if ((flags & Flag.ACK) === 0) {
      this.#output.ping(Flag.ACK, payload);
      this.#floods.answer("PINGs");
      return true;
    }
    const number = payload.readUInt32BE(4);
    const answered = this.#unanswered.get(number);
    if (answered === undefined) this.#floods.idleFrame("answers to PINGs that were never sent");
    this.#unanswered.delete(number);
    answered?.();
    return false;
  }
}
