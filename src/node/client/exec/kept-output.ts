import { invalidArgument } from "../errors.ts";

/** Output that may be read before an acknowledgement, in bytes and in time: one for every byte would cost too much. */
const ACKNOWLEDGE_BYTES = 32 * 1024;
const ACKNOWLEDGE_MS = 20;

/** Offsets of both outputs. */
export interface OutputOffsets {
  readonly stdoutOffset: number;
  readonly stderrOffset: number;
}

/** Positions in one output: of received and of read bytes. */
class KeptOutput {
  /** Offset behind the last byte that has arrived. */
  offset: number;
  /** Offset up to which the output is acknowledged to the agent. */
  acknowledged = 0;
  /** Gaps in the output that may not have been read yet, oldest first. */
  readonly #gaps: { readonly from: number; readonly to: number }[] = [];

  constructor(offset: number) {
    this.offset = offset;
  }

  came(count: number): void {
    this.offset += count;
  }

  /** Bytes are lost. Returns the offset where they began. */
  skip(bytes: number): number {
    const from = this.offset;
    this.offset += bytes;
    this.#gaps.push({ from, to: this.offset });
    return from;
  }

  /** Offset of the next byte of a reader that has not read the last `unread` bytes. */
  readOffset(unread: number): number {
    let left = unread;
    let { offset } = this;
    let gap = this.#gaps.length;
    for (; gap > 0; gap--) {
      const { from, to } = this.#gaps[gap - 1] ?? { from: 0, to: 0 };
      if (left <= offset - to) break;
      left -= offset - to;
      offset = from;
    }
    // Drops gaps that the reader has passed.
    this.#gaps.splice(0, gap);
    return offset - left;
  }
}

/** Both outputs of a kept command, and their acknowledgements. */
export class KeptOutputs {
  readonly stdout: KeptOutput;
  readonly stderr: KeptOutput;
  readonly #unread: (output: "stdout" | "stderr") => number;
  readonly #send: (acknowledged: OutputOffsets) => void;
  #timer: NodeJS.Timeout | undefined;

  /**
   * @param began where they begin
   * @param unread arrived bytes of an output that were not read yet
   * @param send sends acknowledgements to the agent
   */
  constructor(
    began: OutputOffsets,
    unread: (output: "stdout" | "stderr") => number,
    send: (acknowledged: OutputOffsets) => void,
  ) {
    this.stdout = new KeptOutput(began.stdoutOffset);
    this.stderr = new KeptOutput(began.stderrOffset);
    this.#unread = unread;
    this.#send = send;
  }

  /** Offsets behind the received bytes. */
  get offsets(): OutputOffsets {
    return { stdoutOffset: this.stdout.offset, stderrOffset: this.stderr.offset };
  }

  /** Offsets behind the read bytes. */
  get read(): OutputOffsets {
    return {
      stdoutOffset: this.stdout.readOffset(this.#unread("stdout")),
      stderrOffset: this.stderr.readOffset(this.#unread("stderr")),
    };
  }

  /** Offsets up to which the agent may drop output. */
  get acknowledged(): OutputOffsets {
    return { stdoutOffset: this.stdout.acknowledged, stderrOffset: this.stderr.acknowledged };
  }

  /** Acknowledges read bytes: many at once, few after a moment. */
  noteRead(): void {
    const { stdoutOffset, stderrOffset } = this.read;
    const bytes = stdoutOffset - this.stdout.acknowledged + (stderrOffset - this.stderr.acknowledged);
    if (bytes >= ACKNOWLEDGE_BYTES) this.acknowledge({ stdoutOffset, stderrOffset });
    else if (bytes > 0) this.#timer ??= setTimeout(() => this.acknowledge(this.read), ACKNOWLEDGE_MS).unref();
  }

  /**
   * An offset below an earlier one changes nothing. Throws GuestError (INVALID_ARGUMENT) for one past the received
   * bytes.
   */
  acknowledge({ stdoutOffset, stderrOffset }: OutputOffsets): void {
    this.stop();
    for (const [name, output, offset] of [
      ["stdoutOffset", this.stdout, stdoutOffset],
      ["stderrOffset", this.stderr, stderrOffset],
    ] as const) {
      if (offset > output.offset)
        throw invalidArgument(`${name} is ${offset}, but only ${output.offset} bytes have come`);
      if (offset > output.acknowledged) output.acknowledged = offset;
    }
    this.#send(this.acknowledged);
  }

  /** Stops automatic acknowledgements. */
  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}
