import type { ExecFrame, ExecStarted } from "../../../shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { failure, invalidOption } from "../errors/errors.ts";
import { deferred } from "../deferred.ts";
import type { Frame } from "./wire.ts";

/** Limit on the input that is kept until the agent has received it, in bytes. At the limit, further writes wait. */
const HELD_BYTES = 1024 * 1024;
/**
 * Limit on input in flight to the agent, in bytes. If more input than this waits for the command, the agent stops
 * reading frames. It would then not read acknowledgements of output either, because they use the same stream. This
 * could be a deadlock: the command may be blocked until the agent has read an acknowledgement.
 */
const WINDOW_BYTES = 256 * 1024;
/** Overhead of a frame. A frame with n bytes of data uses n + FRAME_BYTES of the WINDOW_BYTES. */
const FRAME_BYTES = 256;
/**
 * The client acknowledges output when the reader has read ACKNOWLEDGE_BYTES, or when ACKNOWLEDGE_MS have passed since a
 * smaller read. An acknowledgement for every read would cost too much.
 */
const ACKNOWLEDGE_BYTES = 32 * 1024;
const ACKNOWLEDGE_MS = 20;

/**
 * Standard input of a kept command. Keeps input until the agent has received it, so that the next call can send it
 * again.
 */
export class KeptInput {
  /** Offset of the first kept byte; undefined before the agent has reported how much input it has received. */
  #offset: number | undefined;
  /**
   * Pieces of input that the agent has not acknowledged; an empty piece stands for the end of input. Undefined if the
   * command accepts no input.
   */
  #held: Buffer[] | undefined = [];
  #heldBytes = 0;
  /** How many of the pieces in `#held` the current call has sent. */
  #sent = 0;
  /** How many of the WINDOW_BYTES the sent pieces use. */
  #sentBytes = 0;
  /**
   * Callbacks of writers that wait because too much input is unacknowledged. Each callback runs as soon as fewer than
   * `below` bytes of input are kept.
   */
  #waiting: { readonly below: number; readonly done: () => void }[] = [];
  /** Sends a frame on the attached call; undefined while no call is attached. */
  #send: ((frame: Frame) => void) | undefined;
  #onTaken: (() => void) | undefined;

  /** Offset up to which the agent has acknowledged input. */
  get takenOffset(): number {
    return this.#offset ?? 0;
  }

  /**
   * Waits until the agent has acknowledged all input, or the command accepts no more input. Also resolves at the time
   * limit, or earlier if the agent has acknowledged nothing for `quietMs`.
   */
  async allTaken(quietMs: number, limitMs: number): Promise<void> {
    const { promise, resolve } = deferred<undefined>();
    const timer = setTimeout(resolve, limitMs, undefined);
    const quiet = setTimeout(resolve, quietMs, undefined);
    this.#onTaken = () => quiet.refresh();
    this.#whenBelow(1, () => resolve(undefined));
    await promise;
    clearTimeout(timer);
    clearTimeout(quiet);
    this.#onTaken = undefined;
  }

  /**
   * Queues a copy of the bytes, so that the caller may reuse their memory at once. Calls `done` when the caller may
   * write more.
   */
  write(bytes: Uint8Array, done: () => void): void {
    if (bytes.length > 0) this.#hold(Buffer.from(bytes));
    this.#whenBelow(HELD_BYTES, done);
  }

  close(): void {
    this.#hold(Buffer.alloc(0));
  }

  /**
   * Starts sending on a newly attached call. Throws GuestError if the input cannot continue at the offset that the
   * agent reports.
   */
  attach({ stdin, terminal, stdinClosed, stdinOffset }: ExecStarted, send: (frame: Frame) => void): void {
    this.#sent = this.#sentBytes = 0;
    this.taken(Number(stdinOffset));
    if ((!stdin && !terminal) || stdinClosed) this.drop();
    this.#send = send;
    this.#flush();
  }

  /** Stops sending, because the call has lost its connection. */
  detach(): void {
    this.#send = undefined;
  }

  /**
   * Records the offset up to which the agent has received input. Throws GuestError (ABORTED) if the offset is beyond
   * the written input, or smaller than an offset that the agent has reported earlier.
   */
  taken(offset: number): void {
    this.#offset ??= offset;
    const takenBytes = offset - this.#offset;
    if (takenBytes > this.#heldBytes)
      throw failure(
        "ABORTED",
        "INPUT_CONFLICT",
        "another client has written to the command's standard input in the meantime",
      );
    // The agent has reported a larger offset before, so the input up to that offset is no longer kept here and cannot
    // be sent again. If the call continued, the command would miss a part of its input.
    if (takenBytes < 0) {
      const had = `the agent had acknowledged ${this.#offset} bytes of the command's standard input, but now has only ${offset}`;
      throw failure(
        "ABORTED",
        "INPUT_LOST",
        `${had}: ${-takenBytes} bytes are lost, for example because the sandbox was rolled back to a snapshot`,
      );
    }
    this.#offset = offset;
    if (takenBytes > 0) this.#onTaken?.();
    this.#forget(takenBytes);
    this.#flush();
  }

  /** Drops all input, because the command accepts no more. */
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

/** Offsets in standard output and standard error, in bytes from the start of each output. */
export type OutputOffsets = Readonly<Record<`${Output}Offset`, number>>;

/** The offsets before the agent has answered a call. No output has been received by then. */
export const NO_OUTPUT: OutputOffsets = { stdoutOffset: 0, stderrOffset: 0 };

interface Position {
  /**
   * Number of bytes that the reader has skipped: the bytes before the first byte that the agent sent, and the bytes of
   * all gaps that the reader has passed. The reader's offset in the output is this number plus the number of bytes that
   * it has read.
   */
  before: number;
  receivedBytes: number;
  /**
   * Gaps in the output (bytes that the agent dropped) which the reader may not have reached yet. `after` is the number
   * of bytes that were received before the gap.
   */
  readonly gaps: { readonly after: number; readonly bytes: number }[];
  /** Offset up to which the agent may drop output. */
  acknowledged: number;
}

/** Tracks the positions in both outputs of a kept command, and acknowledges output. */
export class KeptOutputs {
  readonly #at: Readonly<Record<Output, Position>>;
  readonly #unread: (output: Output) => number;
  readonly #onAcknowledged: () => void;
  #timer: NodeJS.Timeout | undefined;
  #hasGap = false;

  /** @param unread returns how many received bytes of an output its reader has not read yet */
  constructor(began: OutputOffsets, unread: (output: Output) => number, onAcknowledged: () => void) {
    const from = (before: number): Position => ({ before, receivedBytes: 0, gaps: [], acknowledged: 0 });
    this.#at = { stdout: from(began.stdoutOffset), stderr: from(began.stderrOffset) };
    this.#unread = unread;
    this.#onAcknowledged = onAcknowledged;
  }

  /** The offset after the last received byte of each output. */
  get offsets(): OutputOffsets {
    return this.#offsets(({ before, receivedBytes, gaps }) =>
      gaps.reduce((offset, { bytes }) => offset + bytes, before + receivedBytes),
    );
  }

  /**
   * Returns the offsets up to which the reader has read both outputs. Gaps that the reader has passed are included in
   * the offsets, and are then forgotten.
   */
  advanceToRead(): OutputOffsets {
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

  /**
   * Counts the bytes of an output frame. In an exit frame, sets `outputComplete` to false if there was a gap: the agent
   * had dropped output before this call could receive it.
   */
  received(frame: ExecFrame["frame"]): void {
    if (frame.case === "stdout" || frame.case === "stderr") this.#at[frame.case].receivedBytes += frame.value.length;
    else if (frame.case === "exit" && this.#hasGap) frame.value.outputComplete = false;
  }

  /** Records a gap in an output. Returns the offset of the gap's first byte. */
  skip(output: Output, bytes: number): number {
    this.#hasGap = true;
    const { [`${output}Offset` as const]: offset } = this.offsets;
    this.#at[output].gaps.push({ after: this.#at[output].receivedBytes, bytes });
    return offset;
  }

  /** Acknowledges the bytes that the reader has read: at once if they are many, and after a short delay if they are few. */
  noteRead(): void {
    const read = this.advanceToRead();
    const { acknowledged } = this;
    const bytes = read.stdoutOffset - acknowledged.stdoutOffset + (read.stderrOffset - acknowledged.stderrOffset);
    if (bytes >= ACKNOWLEDGE_BYTES) this.acknowledge(read);
    else if (bytes > 0)
      this.#timer ??= setTimeout(() => this.acknowledge(this.advanceToRead()), ACKNOWLEDGE_MS).unref();
  }

  /**
   * Acknowledges output up to these offsets. An offset that is smaller than an earlier one changes nothing. Throws
   * GuestError (INVALID_ARGUMENT) for an offset beyond the received bytes.
   */
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

  /** Cancels the pending automatic acknowledgement. */
  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #offsets(of: (at: Position, output: Output) => number): OutputOffsets {
    return { stdoutOffset: of(this.#at.stdout, "stdout"), stderrOffset: of(this.#at.stderr, "stderr") };
  }
}
