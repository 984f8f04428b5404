import { type Piece, withZeros } from "../holes.ts";
import type { TarEntry } from "../read.ts";
import { errorOf, type PlainError } from "./plain-error.ts";
import { type Batch, BatchReader, type EntryRecord } from "./records.ts";

/** A received entry, a local entry that cannot be read, or a file that was skipped. */
export type ReceivedEntry =
  | { readonly entry: TarEntry & { readonly sparse: boolean } }
  | { readonly failure: { readonly name: Buffer; readonly error: Error } }
  | { readonly skippedBytes: number };

type Step = IteratorResult<ReceivedEntry, undefined>;

/** Receives the entries of a tree, with their content, from an EntrySender in another thread. */
export class EntryReceiver {
  readonly #acknowledge: (used: Batch) => void;
  readonly #batches: Batch[] = [];
  #current: BatchReader | undefined;
  /** Whether a part of the last entry's content is still unread. */
  #isInContent = false;
  #end: { readonly error: unknown } | "end" | undefined;
  #wake: (() => void) | undefined;

  /** @param acknowledge called with each batch that has been read */
  constructor(acknowledge: (used: Batch) => void) {
    this.#acknowledge = acknowledge;
  }

  accept(batch: Batch): void {
    this.#batches.push(batch);
    this.#wake?.();
  }

  /**
   * Must be called when no more batches follow. With an error, the iteration fails with that error, once the batches
   * that have arrived are read.
   */
  end(failure?: { readonly error: unknown }): void {
    this.#end ??= failure ?? "end";
    this.#wake?.();
  }

  /**
   * Returns the next entry: directly if it has already arrived, otherwise as a promise. Creating a promise for every
   * entry would take most of the time.
   */
  next(): Step | Promise<Step> {
    while (this.#isInContent) {
      const rest = this.#take();
      if (rest === undefined && this.#end !== undefined) throw this.#cutOff();
      if (rest === undefined) return this.#later();
      this.#isInContent = rest.kind !== "content-end" && rest.kind !== "content-failure";
    }
    const record = this.#take();
    if (record !== undefined) return { done: false, value: this.#received(record) };
    if (this.#end === undefined) return this.#later();
    if (this.#end !== "end") throw this.#end.error;
    return { done: true, value: undefined };
  }

  async #later(): Promise<Step> {
    await this.#arrival();
    return this.next();
  }

  #received(record: EntryRecord): ReceivedEntry {
    const { kind, name, data, size } = record;
    if (kind === "failure") return { failure: { name: Buffer.from(name), error: recordedError(data) } };
    if (kind === "skipped") return { skippedBytes: size };
    if (kind === "whole") return { entry: wholeEntry(record) };
    this.#isInContent = true;
    return { entry: streamedEntry(record, this.#content()) };
  }

  async *#content(): AsyncGenerator<Piece> {
    for (;;) {
      const record = this.#take();
      if (record === undefined) await this.#moreContent();
      else if (record.kind === "hole") yield { holeBytes: record.size };
      else if (record.kind === "data") yield record.data;
      else {
        this.#isInContent = false;
        if (record.kind === "content-failure") throw recordedError(record.data);
        return;
      }
    }
  }

  async #moreContent(): Promise<void> {
    if (this.#end === undefined) return this.#arrival();
    throw this.#cutOff();
  }

  /** Creates the error for a file of which only the first part of the content has arrived. */
  #cutOff(): unknown {
    const end = this.#end;
    return end === undefined || end === "end" ? new Error("the content of an entry stopped before its end") : end.error;
  }

  #take(): EntryRecord | undefined {
    for (;;) {
      const next = this.#current?.next();
      if (next !== undefined) return next;
      if (this.#current !== undefined) this.#acknowledge(this.#current.batch);
      const batch = this.#batches.shift();
      this.#current = batch && new BatchReader(batch);
      if (batch === undefined) return undefined;
    }
  }

  async #arrival(): Promise<void> {
    while (this.#batches.length === 0 && this.#end === undefined)
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
  }
}

/** Converts a record that has all content of an entry to that entry. */
export function wholeEntry(record: EntryRecord): TarEntry & { readonly sparse: boolean } {
  const { type, name, linkTarget, mode, uid, gid, size, mtimeSeconds, mtimeNs, sparse, data } = record;
  return {
    type,
    name,
    linkTarget,
    mode,
    uid,
    gid,
    size,
    mtimeSeconds,
    mtimeNs,
    sparse,
    readAll: () => data,
    content: { [Symbol.asyncIterator]: () => once(data) },
  };
}

function streamedEntry(record: EntryRecord, pieces: AsyncIterable<Piece>): TarEntry & { readonly sparse: boolean } {
  const { type, linkTarget, mode, uid, gid, size, mtimeSeconds, mtimeNs, sparse } = record;
  // Copy the name: it is still needed after the content was read, and by then the sender may have overwritten the
  // memory of the batch.
  const name = Buffer.from(record.name);
  const head = { type, name, linkTarget, mode, uid, gid, size, mtimeSeconds, mtimeNs, sparse };
  return { ...head, pieces, content: withZeros(pieces) };
}

/** Returns the error that a failure record contains. */
export function recordedError(data: Buffer): Error {
  return errorOf(JSON.parse(data.toString()) as PlainError);
}

/** Yields the whole content of a small file. */
export async function* once(data: Buffer): AsyncGenerator<Buffer> {
  if (data.length > 0) yield data;
}
