import type { ExecStarted } from "../../../shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { failure, invalidOption } from "../errors.ts";
import { deferred } from "../deferred.ts";
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
/** Output that may be read before an acknowledgement, in bytes and in time: one for every byte would cost too much. */
const ACKNOWLEDGE_BYTES = 32 * 1024;
const ACKNOWLEDGE_MS = 20;

/** Standard input of a kept command, held until the agent has taken it, so that a later call can send it again. */
export class KeptInput {
  /** Offset of the first held byte; undefined before the agent has reported how much it has. */
  #offset: number | undefined;
  /** Pieces that the agent has not taken, an empty one for the end; undefined: the command takes no input. */
  #held: Buffer[] | undefined = [];
  #heldBytes = 0;
  /** How many of the pieces this call has sent, and what they take of the window. */
  #sent = 0;
  #sentBytes = 0;
  /** Run once fewer bytes are held. */
  #waiting: { readonly below: number; readonly done: () => void }[] = [];
  /** Sends to the attached call. */
  #send: ((frame: Frame) => void) | undefined;

  /** Offset up to which the agent has acknowledged input. */
  get takenOffset(): number {
    return this.#offset ?? 0;
  }

  /** Resolves when the agent has taken everything, when no input is wanted any more, or after that time. */
  async allTaken(limitMs: number): Promise<void> {
    const { promise, resolve } = deferred<undefined>();
    const timer = setTimeout(resolve, limitMs, undefined);
    this.#whenBelow(1, () => resolve(undefined));
    await promise;
    clearTimeout(timer);
  }

  /** Holds bytes, which the caller may use again. `done` runs when more may follow. */
  write(bytes: Uint8Array, done: () => void): void {
    if (bytes.length > 0) this.#hold(Buffer.from(bytes));
    this.#whenBelow(HELD_BYTES, done);
  }

  close(): void {
    this.#hold(Buffer.alloc(0));
  }

  /** A call is attached. Throws GuestError where its input cannot continue. */
  attach({ stdin, terminal, stdinClosed, stdinOffset }: ExecStarted, send: (frame: Frame) => void): void {
    this.#sent = this.#sentBytes = 0;
    this.taken(Number(stdinOffset));
    if ((!stdin && !terminal) || stdinClosed) this.drop();
    this.#send = send;
    this.#flush();
  }

  /** That call is lost. */
  detach(): void {
    this.#send = undefined;
  }

  /** The agent has taken input up to this offset. Throws GuestError (ABORTED) where that cannot be. */
  taken(offset: number): void {
    this.#offset ??= offset;
    const takenBytes = offset - this.#offset;
    if (takenBytes > this.#heldBytes)
      throw failure(
        "ABORTED",
        "INPUT_CONFLICT",
        "another client has written to the command's standard input in the meantime",
      );
    // What it had acknowledged is not held any more: to go on would leave a hole.
    if (takenBytes < 0) {
      const had = `the agent has ${offset} bytes of the command's standard input, and had acknowledged ${this.#offset}`;
      throw failure("ABORTED", "INPUT_LOST", `${had}: the rest is lost, as by a rollback`);
    }
    this.#offset = offset;
    this.#forget(takenBytes);
    this.#flush();
  }

  /** Drops all input: none is wanted any more. */
  drop(): void {
    this.#held = undefined;
    this.#heldBytes = 0;
    this.#release();
  }

  #hold(piece: Buffer): void {
    if (this.#held === undefined) return;
    this.#held.push(piece);
    this.#heldBytes += piece.length;
    this.#flush();
  }

  #flush(): void {
    for (let piece; (piece = this.#held?.[this.#sent]) !== undefined && this.#send !== undefined; this.#sent++) {
      const cost = piece.length + FRAME_BYTES;
      if (this.#sentBytes + cost > WINDOW_BYTES) return;
      this.#sentBytes += cost;
      this.#send(piece.length === 0 ? { case: "stdinClose", value: {} } : { case: "stdin", value: piece });
    }
  }

  #forget(bytes: number): void {
    for (let left = bytes, first; left > 0 && (first = this.#held?.[0]) !== undefined;) {
      const isWhole = first.length <= left;
      const count = isWhole ? first.length : left;
      this.#held?.splice(0, 1, ...(isWhole ? [] : [first.subarray(count)]));
      if (this.#sent > 0) this.#sentBytes -= isWhole ? count + FRAME_BYTES : count;
      if (this.#sent > 0 && isWhole) this.#sent--;
      left -= count;
    }
    this.#heldBytes -= bytes;
    this.#release();
  }

  #whenBelow(below: number, done: () => void): void {
    this.#waiting.push({ below, done });
    this.#release();
  }

  #release(): void {
    const isDue = ({ below }: { readonly below: number }): boolean => this.#heldBytes < below;
    const due = this.#waiting.filter(isDue);
    this.#waiting = this.#waiting.filter((each) => !isDue(each));
    for (const { done } of due) done();
  }
}

type Output = "stdout" | "stderr";

/** Offsets of both outputs. */
export type OutputOffsets = Readonly<Record<`${Output}Offset`, number>>;

/** Before the agent's first answer. */
export const NO_OUTPUT: OutputOffsets = { stdoutOffset: 0, stderrOffset: 0 };

interface Position {
  /** Where it began, and the gaps that its reader has passed. */
  before: number;
  receivedBytes: number;
  /** Gaps that may not have been read yet, each after that many received bytes. */
  readonly gaps: { readonly after: number; readonly bytes: number }[];
  /** Offset up to which the agent may drop output. */
  acknowledged: number;
}

/** Positions in both outputs of a kept command, and their acknowledgements. */
export class KeptOutputs {
  readonly #at: Readonly<Record<Output, Position>>;
  readonly #unread: (output: Output) => number;
  readonly #onAcknowledged: () => void;
  #timer: NodeJS.Timeout | undefined;

  /** @param unread arrived bytes of an output that were not read yet */
  constructor(began: OutputOffsets, unread: (output: Output) => number, onAcknowledged: () => void) {
    const from = (before: number): Position => ({ before, receivedBytes: 0, gaps: [], acknowledged: 0 });
    this.#at = { stdout: from(began.stdoutOffset), stderr: from(began.stderrOffset) };
    this.#unread = unread;
    this.#onAcknowledged = onAcknowledged;
  }

  /** Offsets behind the received bytes. */
  get offsets(): OutputOffsets {
    return this.#offsets(({ before, receivedBytes, gaps }) =>
      gaps.reduce((offset, { bytes }) => offset + bytes, before + receivedBytes),
    );
  }

  /** Offsets behind the read bytes, and the gaps up to there. */
  get read(): OutputOffsets {
    return this.#offsets((at, output) => {
      const read = at.receivedBytes - this.#unread(output);
      for (let gap; (gap = at.gaps[0]) !== undefined && gap.after <= read; at.gaps.shift()) at.before += gap.bytes;
      return at.before + read;
    });
  }

  /** Offsets up to which the agent may drop output. */
  get acknowledged(): OutputOffsets {
    return this.#offsets(({ acknowledged }) => acknowledged);
  }

  received(output: Output, count: number): void {
    this.#at[output].receivedBytes += count;
  }

  /** Bytes are lost. Returns the offset where they began. */
  skip(output: Output, bytes: number): number {
    const { [`${output}Offset` as const]: offset } = this.offsets;
    this.#at[output].gaps.push({ after: this.#at[output].receivedBytes, bytes });
    return offset;
  }

  /** Acknowledges read bytes: many at once, few after a moment. */
  noteRead(): void {
    const { read, acknowledged } = this;
    const bytes = read.stdoutOffset - acknowledged.stdoutOffset + (read.stderrOffset - acknowledged.stderrOffset);
    if (bytes >= ACKNOWLEDGE_BYTES) this.acknowledge(read);
    else if (bytes > 0) this.#timer ??= setTimeout(() => this.acknowledge(this.read), ACKNOWLEDGE_MS).unref();
  }

  /** An offset below an earlier one changes nothing. Throws GuestError (INVALID_ARGUMENT) past the received bytes. */
  acknowledge(given: OutputOffsets): void {
    this.stop();
    const { offsets } = this;
    for (const output of ["stdout", "stderr"] as const) {
      const name = `${output}Offset` as const;
      if (given[name] > offsets[name])
        throw invalidOption(name, `${name} is ${given[name]}, but only ${offsets[name]} bytes have been received`);
      this.#at[output].acknowledged = Math.max(this.#at[output].acknowledged, given[name]);
    }
    this.#onAcknowledged();
  }

  /** Stops automatic acknowledgements. */
  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #offsets(of: (at: Position, output: Output) => number): OutputOffsets {
    return { stdoutOffset: of(this.#at.stdout, "stdout"), stderrOffset: of(this.#at.stderr, "stderr") };
  }
}
