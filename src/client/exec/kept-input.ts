/** Input that waits for the agent to take it; whoever writes more waits too. */
const HELD_BYTES = 1024 * 1024;

/** Standard input of a kept command, held until the agent has taken it, so that a later call can send it again. */
export class KeptInput {
  /** Offset of the first byte that is held; undefined before the agent has said how much it has. */
  #offset: bigint | undefined;
  #chunks: Buffer[] = [];
  #heldBytes = 0;
  /** How many of the chunks this call has sent. */
  #sent = 0;
  readonly #waiting: (() => void)[] = [];
  #isClosed = false;

  /** How much the agent has taken, as far as it has said. */
  get takenOffset(): bigint {
    return this.#offset ?? 0n;
  }

  /** The end of the input has come. */
  get isClosed(): boolean {
    return this.#isClosed;
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

  /** What this call has not sent yet; it counts as sent then. */
  unsent(): readonly Buffer[] {
    const chunks = this.#chunks.slice(this.#sent);
    this.#sent = this.#chunks.length;
    return chunks;
  }

  /**
   * The agent has taken the input up to there. False where that is more than there was: somebody else has written too.
   *
   * @param isNewCall what is left has to be sent again
   */
  taken(offset: bigint, isNewCall: boolean): boolean {
    this.#offset ??= offset;
    let goneBytes = Number(offset - this.#offset);
    if (goneBytes > this.#heldBytes) return false;
    if (isNewCall) this.#sent = 0;
    if (goneBytes > 0) {
      this.#offset = offset;
      this.#heldBytes -= goneBytes;
      while (goneBytes > 0) {
        const [first = Buffer.alloc(0)] = this.#chunks;
        if (first.length > goneBytes) {
          this.#chunks[0] = first.subarray(goneBytes);
          break;
        }
        goneBytes -= first.length;
        this.#chunks.shift();
        this.#sent = Math.max(0, this.#sent - 1);
      }
    }
    if (this.#heldBytes < HELD_BYTES) this.#release();
    return true;
  }

  /** Nothing of it is wanted any more. */
  drop(): void {
    this.#chunks = [];
    this.#heldBytes = 0;
    this.#sent = 0;
    this.#release();
  }

  #release(): void {
    for (const done of this.#waiting.splice(0)) done();
  }
}
