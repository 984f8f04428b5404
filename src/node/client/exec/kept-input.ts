import type { ExecStarted } from "../../../shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import type { ErrorCode } from "../error-codes.ts";
import { settlement } from "../settlement.ts";
import type { Frame } from "./wire.ts";

/** Input that may wait for the agent to take it; further writes wait. */
const HELD_BYTES = 1024 * 1024;

/**
 * Most input in flight to the agent, which reads no more frames once this much waits for the command. An
 * acknowledgement of output must never be stuck behind that: the command may be waiting for it.
 */
const WINDOW_BYTES = 256 * 1024;
/** Cost of a frame on top of its bytes. */
const FRAME_BYTES = 256;

/** Why a command's input cannot continue. */
export interface InputProblem {
  readonly code: ErrorCode;
  readonly message: string;
}

/** Standard input of a kept command, held until the agent has taken it, so that a later call can send it again. */
export class KeptInput {
  /** Offset of the first held byte; undefined before the agent has reported how much it has. */
  #offset: number | undefined;
  #chunks: Buffer[] = [];
  #heldBytes = 0;
  /** How many of the chunks this call has sent, and what they take of the window. */
  #sent = 0;
  #sentBytes = 0;
  readonly #waiting: (() => void)[] = [];
  #onTaken: (() => void) | undefined;
  #isClosed = false;
  #isCloseSent = false;
  /** Sends to the call that is attached and takes input. */
  #send: ((frame: Frame) => void) | undefined;
  /** The attached command takes no input. */
  #isUnwanted = false;

  /** Offset up to which the agent has acknowledged input. */
  get takenOffset(): number {
    return this.#offset ?? 0;
  }

  /** Resolves when the agent has taken everything, when no input is wanted any more, or after that time. */
  async allTaken(limitMs: number): Promise<void> {
    if (this.#heldBytes === 0) return;
    const { promise, resolve } = settlement<undefined>();
    const timer = setTimeout(resolve, limitMs, undefined);
    this.#onTaken = () => resolve(undefined);
    await promise;
    clearTimeout(timer);
  }

  /** Holds bytes, which the caller may use again. `done` runs when more may follow. */
  write(bytes: Uint8Array, done: () => void): void {
    if (!this.#isUnwanted && bytes.length > 0) {
      this.#chunks.push(Buffer.from(bytes));
      this.#heldBytes += bytes.length;
    }
    if (this.#heldBytes < HELD_BYTES) done();
    else this.#waiting.push(done);
    this.#flush();
  }

  close(): void {
    this.#isClosed = true;
    this.#flush();
  }

  /** A call is attached. Returns why its input cannot continue; undefined: it can. */
  attach(
    { stdin, terminal, stdinClosed, stdinOffset }: ExecStarted,
    send: (frame: Frame) => void,
  ): InputProblem | undefined {
    const problem = this.taken(Number(stdinOffset));
    if (problem !== undefined) return problem;
    this.#sent = this.#sentBytes = 0;
    this.#isCloseSent = false;
    if ((stdin || terminal) && !stdinClosed) this.#send = send;
    else this.drop();
    this.#flush();
    return undefined;
  }

  /** That call is lost. */
  detach(): void {
    this.#send = undefined;
  }

  /** The agent has taken input up to this offset. Returns why that cannot be; undefined: it can. */
  taken(offset: number): InputProblem | undefined {
    this.#offset ??= offset;
    const takenBytes = offset - this.#offset;
    if (takenBytes > this.#heldBytes) {
      const message = "somebody else has written to the command's standard input meanwhile";
      return { code: "INPUT_CONFLICT", message };
    }
    // What it had acknowledged is not held any more: to go on would leave a hole.
    if (takenBytes < 0) {
      const had = `the agent has ${offset} bytes of the command's standard input, and had acknowledged ${this.#offset}`;
      return { code: "INPUT_LOST", message: `${had}: the rest is lost, as by a rollback` };
    }
    if (takenBytes > 0) this.#forget(takenBytes);
    if (this.#heldBytes < HELD_BYTES) this.#release();
    this.#flush();
    return undefined;
  }

  /** Drops all input: none is wanted any more. */
  drop(): void {
    this.#isUnwanted = true;
    this.#send = undefined;
    this.#chunks = [];
    this.#heldBytes = this.#sent = this.#sentBytes = 0;
    this.#release();
  }

  #flush(): void {
    for (let chunk = this.#chunks[this.#sent]; chunk !== undefined; chunk = this.#chunks[this.#sent]) {
      if (this.#send === undefined || this.#sentBytes + chunk.length + FRAME_BYTES > WINDOW_BYTES) return;
      this.#sent++;
      this.#sentBytes += chunk.length + FRAME_BYTES;
      this.#send({ case: "stdin", value: chunk });
    }
    if (this.#send === undefined || !this.#isClosed || this.#isCloseSent) return;
    this.#isCloseSent = true;
    this.#send({ case: "stdinClose", value: {} });
  }

  #forget(bytes: number): void {
    this.#offset = this.takenOffset + bytes;
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
    if (this.#heldBytes === 0) this.#onTaken?.();
  }
}
