import { entryErrorOf } from "../entry-error.ts";
import { isHole, type Piece } from "../holes.ts";
import { LocalTarEntry } from "../local-tree.ts";
import type { TarHeader } from "../format.ts";
import type { TarEntry } from "../read.ts";
import { plainError } from "./plain-error.ts";
import { type Batch, BATCH_BYTES, BatchWriter, type EntryRecord, NO_ENTRY } from "./records.ts";

/**
 * Limit on bytes that the other thread has not acknowledged. Two batches would suffice; with more, neither thread waits
 * when the other one pauses.
 */
const IN_FLIGHT_BYTES = 8 * BATCH_BYTES;
/** Limit on the time that entries wait in a batch. */
const LATE_MS = 20;
/** Content of at least this size is transferred to the other thread without copying it. */
const DIRECT_BYTES = BATCH_BYTES / 2;
const NONE = Buffer.alloc(0);

/** A record about an entry that is not sent: it could not be read, or was skipped. */
export interface NoEntry {
  readonly kind: "failure" | "skipped";
  readonly name: Buffer;
  readonly size: number;
  readonly data: Buffer;
}

/** What to send for an entry: the entry, or a record that says why the entry is missing. For undefined, nothing is sent. */
export type SentEntry = TarEntry | LocalTarEntry | NoEntry | undefined;

type Step = IteratorResult<SentEntry, unknown>;

/** Sends the entries of a tree, with their content, to another thread. */
export class EntrySender {
  readonly #post: (batch: Batch) => void;
  readonly #writer = new BatchWriter();
  #inFlightBytes = 0;
  #wake: (() => void) | undefined;
  #isStopped = false;
  #begunMs = 0;
  #soon: NodeJS.Immediate | undefined;

  /** @param post transfers a batch to the other thread */
  constructor(post: (batch: Batch) => void) {
    this.#post = post;
  }

  /**
   * Must be called when the other thread reports that it has processed this many bytes.
   *
   * @param memory the memory in which the bytes were sent; it is used for a later batch
   */
  acknowledge(bytes: number, memory?: ArrayBuffer): void {
    this.#inFlightBytes -= bytes;
    if (memory !== undefined) this.#writer.reuse(memory);
    this.#wake?.();
  }

  /** Makes `send` return before all entries are sent. For a receiver that needs no further entries. */
  stop(): void {
    this.#isStopped = true;
    this.#wake?.();
  }

  /**
   * Sends all entries, until `stop` is called. If the content of an entry cannot be read, sends that failure and
   * continues. Rejects with errors of the iterator. Closes the iterator in any case.
   *
   * @param onContentFailure called with the name of each entry whose content cannot be read
   */
  async send(
    entries: Iterable<SentEntry> | AsyncIterable<SentEntry>,
    onContentFailure: (name: Buffer) => void = () => undefined,
  ): Promise<void> {
    const iterator = Symbol.iterator in entries ? entries[Symbol.iterator]() : entries[Symbol.asyncIterator]();
    let isFinished = false;
    let isFirst = true;
    try {
      while (!this.#isStopped) {
        const step: Step | Promise<Step> = iterator.next();
        // Entries that arrive together are sent together, and do not wait for later ones.
        if (step instanceof Promise && this.#writer.sizeBytes > 0) this.#soon ??= setImmediate(() => this.#flush());
        const next = step instanceof Promise ? await step : step;
        if (next.done === true) {
          isFinished = true;
          break;
        }
        // Await only if `#add` has returned a promise: an await for every entry would take most of the time.
        const added = this.#add(next.value, onContentFailure);
        if (added !== undefined) await added;
        if (isFirst || performance.now() - this.#begunMs >= LATE_MS) this.#flush();
        isFirst = false;
      }
      this.#flush();
    } finally {
      clearImmediate(this.#soon);
      // Do not await the iterator's `return`: a generator runs `return` only after its pending `next`, which may never
      // settle.
      if (!isFinished) void Promise.resolve(iterator.return?.()).catch(() => undefined);
    }
  }

  #add(entry: SentEntry, onContentFailure: (name: Buffer) => void): Promise<void> | undefined {
    if (entry === undefined) return undefined;
    if ("kind" in entry) return this.#put(entry.kind, { ...NO_ENTRY, name: entry.name, size: entry.size }, entry.data);
    if (entry.type !== "file") return this.#put("whole", entry, NONE);
    try {
      if (entry instanceof LocalTarEntry)
        return entry.isSmall ? this.#local(entry) : this.#stream(entry, entry.pieces(), true, onContentFailure);
      const { readAll, content, pieces = content } = entry;
      if (readAll === undefined) return this.#stream(entry, pieces, false, onContentFailure);
      return this.#put("whole", entry, readAll());
    } catch (error) {
      return this.#failed(entry, error, onContentFailure);
    }
  }

  /** Reads a small file without an intermediate copy. */
  #local(entry: LocalTarEntry): Promise<void> | undefined {
    const data = this.#reserve("whole", entry, entry.size);
    try {
      entry.readInto(data);
    } catch (error) {
      this.#writer.withdraw();
      throw error;
    }
    return this.#added();
  }

  async #failed(entry: TarHeader, error: unknown, onContentFailure: (name: Buffer) => void): Promise<void> {
    await this.#put("streamed", entry, NONE);
    await this.#endContent(entry, error, onContentFailure);
  }

  /**
   * @param isOwn whether the sender owns the memory of the pieces, so that it may transfer the memory to the other
   *   thread
   */
  async #stream(
    entry: TarHeader,
    pieces: AsyncIterable<Piece>,
    isOwn: boolean,
    onContentFailure: (name: Buffer) => void,
  ): Promise<void> {
    await this.#put("streamed", entry, NONE);
    try {
      for await (const piece of pieces) {
        if (this.#isStopped) return;
        const sent = isHole(piece)
          ? this.#put("hole", { ...NO_ENTRY, size: piece.holeBytes }, NONE)
          : this.#data(piece, isOwn);
        if (sent !== undefined) await sent;
      }
    } catch (error) {
      return this.#endContent(entry, error, onContentFailure);
    }
    await this.#put("content-end", NO_ENTRY, NONE);
  }

  #data(piece: Buffer, isOwn: boolean): Promise<void> | undefined {
    if (isOwn && piece.byteOffset === 0 && piece.length >= DIRECT_BYTES) {
      this.#flush();
      this.#send({ bytes: piece.buffer as ArrayBuffer, sizeBytes: piece.length, isData: true });
      return this.#inFlightBytes > IN_FLIGHT_BYTES ? this.#room() : undefined;
    }
    if (piece.length <= BATCH_BYTES) return this.#put("data", NO_ENTRY, piece);
    return this.#parts(piece);
  }

  async #parts(piece: Buffer): Promise<void> {
    for (let at = 0; at < piece.length; at += BATCH_BYTES)
      await this.#put("data", NO_ENTRY, piece.subarray(at, at + BATCH_BYTES));
  }

  /** Reports to the other thread that an entry's content could not be read. Rethrows errors that end the whole copy. */
  async #endContent({ name }: TarHeader, error: unknown, onContentFailure: (name: Buffer) => void): Promise<void> {
    const failed = entryErrorOf(error);
    if (failed === undefined) throw error;
    onContentFailure(name);
    await this.#put("content-failure", NO_ENTRY, Buffer.from(JSON.stringify(plainError(failed))));
  }

  #put(kind: EntryRecord["kind"], head: TarHeader, data: Buffer): Promise<void> | undefined {
    const reserved = this.#reserve(kind, head, data.length);
    if (data.length > 0) reserved.set(data);
    return this.#added();
  }

  #reserve(kind: EntryRecord["kind"], head: TarHeader, dataBytes: number): Buffer {
    if (!this.#writer.fits(head, dataBytes)) this.#flush();
    if (this.#writer.sizeBytes === 0) this.#begunMs = performance.now();
    return this.#writer.reserve(kind, head, dataBytes);
  }

  #added(): Promise<void> | undefined {
    if (this.#writer.sizeBytes >= BATCH_BYTES) this.#flush();
    return this.#inFlightBytes > IN_FLIGHT_BYTES ? this.#room() : undefined;
  }

  #flush(): void {
    clearImmediate(this.#soon);
    this.#soon = undefined;
    if (this.#writer.sizeBytes > 0) this.#send(this.#writer.take());
  }

  #send(batch: Batch): void {
    this.#inFlightBytes += batch.sizeBytes;
    this.#post(batch);
  }

  async #room(): Promise<void> {
    while (this.#inFlightBytes > IN_FLIGHT_BYTES && !this.#isStopped)
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
  }
}

/** Creates the record of an entry that cannot be read. */
export function failureRecord(name: Buffer, error: unknown): NoEntry {
  return { kind: "failure", name, size: 0, data: Buffer.from(JSON.stringify(plainError(error))) };
}

/** Creates the record of a file that the receiver has already. */
export function skippedRecord(size: number): NoEntry {
  return { kind: "skipped", name: NONE, size, data: NONE };
}
