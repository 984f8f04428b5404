/** Input that waits for the agent to take it; whoever writes more waits too. */
const HELD_BYTES = 1024 * 1024;

/**
 * Input on its way to the agent, which reads no more frames once 256 KiB wait for the command: an acknowledgement of output
 * must never wait behind input for a command that waits for it.
 */
const WINDOW_BYTES = 256 * 1024;
/** What a frame costs beside its bytes. */
const FRAME_BYTES = 256;

/** Standard input of a kept command, held until the agent has taken it, so that a later call can send it again. */
export class KeptInput {
  /** Offset of the first byte that is held; undefined before the agent has said how much it has. */
  #offset: bigint | undefined;
  #chunks: Buffer[] = [];
  #heldBytes = 0;
  /** How many of the chunks this call has sent, and what they take of the window. */
  #sent = 0;
  #sentBytes = 0;
  readonly #waiting: (() => void)[] = [];
  #isClosed = false;

  /** How much the agent has taken, as far as it has said. */
  get takenOffset(): bigint {
    return this.#offset ?? 0n;
  }

  /** The end of the input has come, and all of it is on its way. */
  get isSentToItsEnd(): boolean {
    return this.#isClosed && this.#sent === this.#chunks.length;
  }

  /** Nothing waits for the agent. */
  get isTaken(): boolean {
    return this.#heldBytes === 0;
  }

  /** Holds bytes, which the caller may use again. `done` runs when more may follow. */
  write(bytes: Uint8Array, done: () => void): void {
    if (bytes.length > 0) this.#chunks.push(Buffer.from(bytes));
    this.#heldBytes += bytes.length;
    if (this.#heldBytes < HELD_BYTES) done();
    else this.#waiting.push(done);
  }

  close(): void {
    this.#isClosed = true;
  }

  /** What this call may send now; it counts as sent then. */
  *toSend(): Generator<Buffer> {
    for (let chunk = this.#chunks[this.#sent]; chunk !== undefined; chunk = this.#chunks[this.#sent]) {
      if (this.#sentBytes + chunk.length + FRAME_BYTES > WINDOW_BYTES) return;
      this.#sent++;
      this.#sentBytes += chunk.length + FRAME_BYTES;
      yield chunk;
    }
  }

  /**
   * The agent has taken the input up to there. False where that is more than there was: somebody else has written too.
   *
   * @param isNewCall what is left has to be sent again
   */
  taken(offset: bigint, isNewCall: boolean): boolean {
    this.#offset ??= offset;
    const takenBytes = Number(offset - this.#offset);
    if (takenBytes > this.#heldBytes) return false;
    if (takenBytes > 0) this.#forget(takenBytes);
    if (isNewCall) this.#sent = this.#sentBytes = 0;
    if (this.#heldBytes < HELD_BYTES) this.#release();
    return true;
  }

  /** Nothing of it is wanted any more. */
  drop(): void {
    this.#chunks = [];
    this.#heldBytes = this.#sent = this.#sentBytes = 0;
    this.#release();
  }

  #forget(bytes: number): void {
    this.#offset = this.takenOffset + BigInt(bytes);
    this.#heldBytes -= bytes;
    let left = bytes;
    for (let [first] = this.#chunks; first !== undefined && left > 0; [first] = this.#chunks) {
      if (first.length > left) {
        this.#chunks[0] = first.subarray(left);
        this.#sentBytes -= left;
        return;
      }
      left -= first.length;
      this.#chunks.shift();
      if (this.#sent === 0) continue;
      this.#sent--;
      this.#sentBytes -= first.length + FRAME_BYTES;
    }
  }

  #release(): void {
    for (const done of this.#waiting.splice(0)) done();
  }
}
