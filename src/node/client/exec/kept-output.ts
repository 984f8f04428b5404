import { invalidArgument } from "../errors.ts";

/** What may have been read without telling the agent, in bytes and in time: a frame for every byte would cost too much. */
const ACKNOWLEDGE_BYTES = 32 * 1024;
const ACKNOWLEDGE_MS = 20;

/** Offsets of both outputs. */
export interface OutputOffsets {
  readonly stdoutOffset: bigint;
  readonly stderrOffset: bigint;
}

/** Where an output is: what has come of it, and what has been read. */
class KeptOutput {
  /** Behind the last byte that has come. */
  offset: bigint;
  /** How far the agent has been told that bytes are not needed any more. */
  acknowledged = 0n;
  /** Where something is missing in what has come and may not have been read yet, oldest first. */
  readonly #gaps: { readonly from: bigint; readonly to: bigint }[] = [];

  constructor(offset: bigint) {
    this.offset = offset;
  }

  /** Bytes have come. */
  came(count: number): void {
    this.offset += BigInt(count);
  }

  /** Bytes will not come. Returns where they began. */
  skip(bytes: bigint): bigint {
    const from = this.offset;
    this.offset += bytes;
    this.#gaps.push({ from, to: this.offset });
    return from;
  }

  /** Offset of the next byte for a reader who has not read the last `unread` bytes that have come. */
  readOffset(unread: number): bigint {
    let left = BigInt(unread);
    let { offset } = this;
    let gap = this.#gaps.length;
    for (; gap > 0; gap--) {
      const { from, to } = this.#gaps[gap - 1] ?? { from: 0n, to: 0n };
      if (left <= offset - to) break;
      left -= offset - to;
      offset = from;
    }
    // The reader is past those before.
    this.#gaps.splice(0, gap);
    return offset - left;
  }
}

/** Both outputs of a kept command, and what the agent is told of them. */
export class KeptOutputs {
  readonly stdout: KeptOutput;
  readonly stderr: KeptOutput;
  readonly #unread: (output: "stdout" | "stderr") => number;
  readonly #send: (acknowledged: OutputOffsets) => void;
  #timer: NodeJS.Timeout | undefined;

  /**
   * @param began where they begin
   * @param unread bytes of an output that have come and that nobody has read yet
   * @param send tells the agent
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

  /** Behind what has come. */
  get offsets(): OutputOffsets {
    return { stdoutOffset: this.stdout.offset, stderrOffset: this.stderr.offset };
  }

  /** Behind what has been read. */
  get read(): OutputOffsets {
    return {
      stdoutOffset: this.stdout.readOffset(this.#unread("stdout")),
      stderrOffset: this.stderr.readOffset(this.#unread("stderr")),
    };
  }

  /** What the agent need not hold any more. */
  get acknowledged(): OutputOffsets {
    return { stdoutOffset: this.stdout.acknowledged, stderrOffset: this.stderr.acknowledged };
  }

  /** Acknowledges what has been read: at once where it is much, else after a moment. */
  noteRead(): void {
    const { stdoutOffset, stderrOffset } = this.read;
    const bytes = stdoutOffset - this.stdout.acknowledged + (stderrOffset - this.stderr.acknowledged);
    if (bytes >= ACKNOWLEDGE_BYTES) this.acknowledge({ stdoutOffset, stderrOffset });
    else if (bytes > 0n) this.#timer ??= setTimeout(() => this.acknowledge(this.read), ACKNOWLEDGE_MS).unref();
  }

  /** An offset below an earlier one changes nothing. Throws GuestError (INVALID_ARGUMENT) for one past what has come. */
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

  /** Nothing more is acknowledged by itself. */
  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}
