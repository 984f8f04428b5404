import type { ByteStore } from "../domain/index.ts";

/** An output stream of a command. With a terminal, there is only stdout. */
export type OutputStream = "stdout" | "stderr";

/** A position in each stream, in bytes since the start of the stream. */
export interface Offsets {
  readonly stdout: number;
  readonly stderr: number;
}

/** What happens if the buffer is full: drop the oldest bytes, or stop reading until the client acknowledges output. */
export type WhenFull = "drop_oldest" | "block";

/** Largest number of bytes of one read(2), and of one chunk for a reader. A pipe has this capacity. */
export const READ_BYTES: number = 64 * 1024;
/**
 * The buffer has extra space beyond its capacity, because new bytes are read before old bytes are dropped. The extra
 * space is as large as the capacity, but at least LEAST_SLACK_BYTES and at most READ_BYTES.
 */
const LEAST_SLACK_BYTES = 4 * 1024;
/**
 * Bytes of the buffer's capacity per element of the list of runs. An element takes 9 bytes. A run is a sequence of
 * bytes from the same stream.
 */
const BYTES_A_RUN = 64;
const LEAST_RUNS = 64;

/** How far a reader has read the output of both streams. */
export interface Cursor {
  /** Number of bytes before the next byte to read, counted over both streams together. */
  position: number;
  /** Number of the run (see OutputLog) that contains `position`. */
  run: number;
  /** How many of the bytes before `position` belong to each stream. */
  readonly at: Record<OutputStream, number>;
  /** For each stream, the offset of the next byte that the reader needs. */
  readonly wanted: Record<OutputStream, number>;
}

export type LogEntry =
  | { readonly kind: "output"; readonly stream: OutputStream; readonly bytes: Uint8Array }
  /** Number of bytes of the stream that the reader has missed, because they were dropped from the buffer. */
  | { readonly kind: "gap"; readonly stream: OutputStream; readonly bytes: number };

/**
 * The last output of a command, in the order in which it was read. The streams are read directly into a ring buffer, so
 * output that no client reads costs one read(2) per 64 KiB and no copy. A run is a sequence of bytes from the same
 * stream.
 */
export class OutputLog {
  readonly #capacity: number;
  readonly #bytes: Uint8Array;
  readonly #onMore: () => void;
  #whenFull: WhenFull | "discard";
  /** Positions in the output: of the oldest byte in the buffer, and of the end. */
  #oldest = 0;
  #end = 0;
  readonly #ends: Record<OutputStream, number> = { stdout: 0, stderr: 0 };
  readonly #held: Record<OutputStream, number> = { stdout: 0, stderr: 0 };
  readonly #acknowledged: Record<OutputStream, number> = { stdout: 0, stderr: 0 };
  /**
   * `#runEnds` has the position at which each run ends, and `#runStreams` has its stream (0: stdout, 1: stderr). Both
   * arrays are rings: a run's index in them is its number modulo their length. Only the last run can still grow.
   */
  readonly #runEnds: Float64Array;
  readonly #runStreams: Uint8Array;
  #firstRun = 0;
  #runs = 0;

  /**
   * @param streams number of output streams: 1 if the command has no separate stderr. One run then contains all output.
   * @param onMore called when there is new output
   */
  constructor(capacityBytes: number, whenFull: WhenFull, streams: 1 | 2, onMore: () => void) {
    this.#capacity = capacityBytes;
    this.#onMore = onMore;
    this.#whenFull = whenFull;
    this.#bytes = new Uint8Array(capacityBytes + Math.max(LEAST_SLACK_BYTES, Math.min(capacityBytes, READ_BYTES)));
    const runs = streams === 1 ? 1 : Math.max(LEAST_RUNS, Math.ceil(capacityBytes / BYTES_A_RUN));
    this.#runEnds = new Float64Array(runs);
    this.#runStreams = new Uint8Array(runs);
  }

  get heldBytes(): number {
    return this.#end - this.#oldest;
  }

  /** Number of bytes of each stream so far. */
  get ends(): Offsets {
    return this.#ends;
  }

  /** Returns the part of this log's buffer into which the next output of the stream is read. */
  store(stream: OutputStream): ByteStore {
    const room = (): number => this.#room(stream);
    const position = (): number => this.#end % this.#bytes.length;
    return {
      bytes: this.#bytes,
      room,
      get position() {
        return position();
      },
      filled: (count) => this.#filled(stream, count),
    };
  }

  /**
   * Records that the client has received the bytes before these offsets. In the mode "block", only such bytes may be
   * dropped. An offset that is lower than an earlier one has no effect.
   */
  acknowledge({ stdout, stderr }: Offsets): void {
    this.#acknowledged.stdout = Math.max(this.#acknowledged.stdout, stdout);
    this.#acknowledged.stderr = Math.max(this.#acknowledged.stderr, stderr);
  }

  /**
   * Drops the oldest bytes from now on, even if they are not acknowledged, so that the command does not wait for a
   * client.
   */
  stopBlocking(): void {
    if (this.#whenFull === "block") this.#whenFull = "drop_oldest";
  }

  /** Drops the output in the buffer, and all later output. */
  discard(): void {
    this.#whenFull = "discard";
    this.#drop(this.heldBytes);
  }

  /** Creates the cursor of a reader that starts at these offsets. No offset may be past the end of its stream. */
  cursor({ stdout, stderr }: Offsets): Cursor {
    const at = { stdout: this.#base("stdout"), stderr: this.#base("stderr") };
    return { position: this.#oldest, run: this.#firstRun, at, wanted: { stdout, stderr } };
  }

  /**
   * Returns the reader's next entry and advances the cursor; returns undefined if there is no new entry. Output is
   * copied into a buffer that `bufferFor` provides.
   */
  next(cursor: Cursor, bufferFor: (sizeBytes: number) => Uint8Array): LogEntry | undefined {
    if (cursor.position < this.#oldest) {
      cursor.position = this.#oldest;
      cursor.at.stdout = this.#base("stdout");
      cursor.at.stderr = this.#base("stderr");
    }
    // A run is a piece of output. If the log has dropped the run at the cursor, the reader continues with the oldest
    // run that is left. The dropped run must not be looked up, because its ring element may belong to a newer run.
    cursor.run = Math.max(cursor.run, this.#firstRun);
    const gap = this.#gap(cursor, "stdout") ?? this.#gap(cursor, "stderr");
    if (gap !== undefined) return gap;
    while (cursor.position < this.#end) {
      const runEnd = this.#runEnd(cursor.run);
      if (cursor.position === runEnd) {
        cursor.run++;
        continue;
      }
      const stream = this.#streamOf(cursor.run);
      const unwanted = cursor.wanted[stream] - cursor.at[stream];
      const count = Math.min(runEnd - cursor.position, unwanted > 0 ? unwanted : READ_BYTES);
      const bytes = unwanted > 0 ? undefined : this.#copy(cursor.position, bufferFor(count));
      cursor.position += count;
      cursor.at[stream] += count;
      if (bytes === undefined) continue;
      cursor.wanted[stream] += count;
      return { kind: "output", stream, bytes };
    }
    return undefined;
  }

  #gap({ wanted }: Cursor, stream: OutputStream): LogEntry | undefined {
    const bytes = this.#base(stream) - wanted[stream];
    if (bytes <= 0) return undefined;
    wanted[stream] += bytes;
    return { kind: "gap", stream, bytes };
  }

  /** Offset of a stream's oldest byte. */
  #base(stream: OutputStream): number {
    return this.#ends[stream] - this.#held[stream];
  }

  #runEnd(run: number): number {
    return this.#runEnds[run % this.#runEnds.length] ?? 0;
  }

  #streamOf(run: number): OutputStream {
    return this.#runStreams[run % this.#runStreams.length] === 0 ? "stdout" : "stderr";
  }

  /** Whether the last run consists of bytes of this stream, so that the next bytes of the stream extend this run. */
  #isOnRun(stream: OutputStream): boolean {
    return this.#runs > 0 && this.#streamOf(this.#firstRun + this.#runs - 1) === stream;
  }

  #room(stream: OutputStream): number {
    const size = this.#bytes.length;
    const untilWrap = size - (this.#end % size);
    if (this.#whenFull !== "block") return Math.min(READ_BYTES, untilWrap, size - this.heldBytes);
    while (!this.#isOnRun(stream) && this.#runs === this.#runEnds.length) {
      if (!this.#dropAcknowledged(1)) return 0;
    }
    const missing = Math.min(READ_BYTES, untilWrap) - (this.#capacity - this.heldBytes);
    this.#dropAcknowledged(missing);
    return Math.min(READ_BYTES, untilWrap, this.#capacity - this.heldBytes);
  }

  #filled(stream: OutputStream, count: number): void {
    if (this.#whenFull === "discard") {
      this.#ends[stream] += count;
      return;
    }
    if (!this.#isOnRun(stream)) {
      if (this.#runs === this.#runEnds.length) this.#drop(this.#runEnd(this.#firstRun) - this.#oldest);
      this.#runStreams[(this.#firstRun + this.#runs) % this.#runStreams.length] = stream === "stdout" ? 0 : 1;
      this.#runs++;
    }
    this.#end += count;
    this.#runEnds[(this.#firstRun + this.#runs - 1) % this.#runEnds.length] = this.#end;
    this.#ends[stream] += count;
    this.#held[stream] += count;
    this.#drop(this.heldBytes - this.#capacity);
    this.#onMore();
  }

  /** Drops acknowledged bytes from the beginning of the buffer, at most `wantedBytes`. Returns whether any were dropped. */
  #dropAcknowledged(wantedBytes: number): boolean {
    let left = wantedBytes;
    while (left > 0 && this.heldBytes > 0) {
      const stream = this.#streamOf(this.#firstRun);
      const acknowledged = this.#acknowledged[stream] - this.#base(stream);
      const count = Math.min(left, acknowledged, this.#runEnd(this.#firstRun) - this.#oldest);
      if (count <= 0) break;
      this.#drop(count);
      left -= count;
    }
    return left < wantedBytes;
  }

  #drop(bytes: number): void {
    let left = bytes;
    while (left > 0) {
      const runEnd = this.#runEnd(this.#firstRun);
      const count = Math.min(left, runEnd - this.#oldest);
      this.#held[this.#streamOf(this.#firstRun)] -= count;
      this.#oldest += count;
      left -= count;
      if (this.#oldest === runEnd) {
        this.#firstRun++;
        this.#runs--;
      }
    }
  }

  /** Copies bytes, beginning at `position`, until `copy` is full, and returns `copy`. */
  #copy(position: number, copy: Uint8Array): Uint8Array {
    const from = position % this.#bytes.length;
    const untilWrap = Math.min(copy.length, this.#bytes.length - from);
    copy.set(this.#bytes.subarray(from, from + untilWrap));
    if (untilWrap < copy.length) copy.set(this.#bytes.subarray(0, copy.length - untilWrap), untilWrap);
    return copy;
  }
}
