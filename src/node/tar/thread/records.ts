import type { TarHeader, TarType } from "../format.ts";

/** Size of a record without its name, link target and data. */
const HEAD_BYTES = 60;
/** A batch of records is sent as soon as it has at least this size. */
export const BATCH_BYTES: number = 256 * 1024;
/**
 * Memory of a batch. It is larger than BATCH_BYTES, so that a file's name fits before the file's first piece of
 * content, which is often as large as BATCH_BYTES.
 */
const CAPACITY_BYTES = BATCH_BYTES + 8 * 1024;

const KINDS = ["whole", "streamed", "data", "hole", "content-end", "content-failure", "failure", "skipped"] as const;
const TYPES: readonly TarType[] = [
  "file",
  "hard-link",
  "symlink",
  "directory",
  "pax",
  "pax-global",
  "gnu-name",
  "gnu-link",
  "gnu-sparse",
  "other",
];

const HAS_UID = 1;
const HAS_GID = 2;
const HAS_TIME_NS = 4;
const IS_SPARSE = 8;
const INT64_LIMIT = 2n ** 63n;

const NONE = Buffer.alloc(0);

/**
 * A record about the entries of a tree, which one thread sends to another. The kinds of records:
 *
 * - `whole`: an entry, with all of its content in `data`.
 * - `streamed`: a file whose content follows in records of the kinds `data` and `hole`; `size` of a `hole` is its length.
 *   The last record of the file is `content-end`, or `content-failure` with the error in `data`.
 * - `failure`: a local entry that cannot be read, with the error in `data`.
 * - `skipped`: a local file that the receiver already has.
 */
export interface EntryRecord extends TarHeader {
  readonly kind: (typeof KINDS)[number];
  readonly sparse: boolean;
  readonly data: Buffer;
}

/** One or more records in a single piece of memory, which is transferred to the other thread. */
export interface Batch {
  readonly bytes: ArrayBuffer;
  readonly sizeBytes: number;
  /**
   * True if the memory contains only the content of one "data" record. Otherwise it contains whole records, each with
   * its header.
   */
  readonly isData?: boolean;
}

/** The properties of an entry that its record contains. */
type Head = TarHeader & { readonly sparse?: boolean | undefined };

/** Collects records in memory that can be transferred to another thread. */
export class BatchWriter {
  #bytes: Buffer = Buffer.alloc(0);
  #view: DataView = new DataView(this.#bytes.buffer);
  #at = 0;
  #lastAt = 0;
  /**
   * Memory that the other thread has returned. Later batches reuse it, because allocating new memory would take as long
   * as copying the data.
   */
  readonly #spare: ArrayBuffer[] = [];

  get sizeBytes(): number {
    return this.#at;
  }

  /** Keeps the memory of a batch that the receiver no longer needs, so that a later batch can use it. */
  reuse(memory: ArrayBuffer): void {
    if (memory.byteLength === CAPACITY_BYTES) this.#spare.push(memory);
  }

  /** Whether a record fits. An empty batch has room for any record. */
  fits({ name, linkTarget }: Head, dataBytes: number): boolean {
    const sizeBytes = HEAD_BYTES + name.length + linkTarget.length + dataBytes;
    return this.#at === 0 || this.#at + sizeBytes <= this.#bytes.length;
  }

  /** Adds a record, and returns the memory for its data. The caller must fill this memory, or remove the record again. */
  reserve(kind: EntryRecord["kind"], head: Head, dataBytes: number): Buffer {
    const { type, name, linkTarget, mode, uid, gid, size, mtimeSeconds, mtimeNs, sparse = false } = head;
    this.#lastAt = this.#at;
    if (this.#at === 0) this.#begin(HEAD_BYTES + name.length + linkTarget.length + dataBytes);
    const view = this.#view;
    const at = this.#at;
    // Times in an archive may need more than 64 bits. For such a time no nanoseconds are sent, and the receiver uses
    // the seconds.
    const hasTimeNs = mtimeNs !== undefined && mtimeNs < INT64_LIMIT && mtimeNs >= -INT64_LIMIT;
    view.setUint8(at, KINDS.indexOf(kind));
    view.setUint8(at + 1, TYPES.indexOf(type));
    view.setUint8(
      at + 2,
      (uid === undefined ? 0 : HAS_UID) |
        (gid === undefined ? 0 : HAS_GID) |
        (hasTimeNs ? HAS_TIME_NS : 0) |
        (sparse ? IS_SPARSE : 0),
    );
    view.setUint32(at + 4, mode, true);
    view.setFloat64(at + 8, uid ?? 0, true);
    view.setFloat64(at + 16, gid ?? 0, true);
    view.setFloat64(at + 24, size, true);
    view.setFloat64(at + 32, mtimeSeconds, true);
    view.setBigInt64(at + 40, hasTimeNs ? mtimeNs : 0n, true);
    view.setUint32(at + 48, name.length, true);
    view.setUint32(at + 52, linkTarget.length, true);
    view.setUint32(at + 56, dataBytes, true);
    this.#at += HEAD_BYTES;
    this.#put(name);
    this.#put(linkTarget);
    const dataAt = this.#at;
    this.#at += dataBytes;
    return dataBytes === 0 ? NONE : this.#bytes.subarray(dataAt, this.#at);
  }

  /** Removes the record that was reserved last, because its data could not be read. */
  withdraw(): void {
    this.#at = this.#lastAt;
  }

  /** Returns the batch, and begins another one. */
  take(): Batch {
    const batch = { bytes: this.#bytes.buffer as ArrayBuffer, sizeBytes: this.#at };
    this.#at = 0;
    return batch;
  }

  #put(part: Buffer): void {
    if (part.length === 0) return;
    this.#bytes.set(part, this.#at);
    this.#at += part.length;
  }

  #begin(leastBytes: number): void {
    const spare = leastBytes <= CAPACITY_BYTES ? this.#spare.pop() : undefined;
    // allocUnsafeSlow does not use Node's pool of buffers, whose memory cannot be transferred.
    this.#bytes =
      spare === undefined ? Buffer.allocUnsafeSlow(Math.max(leastBytes, CAPACITY_BYTES)) : Buffer.from(spare);
    this.#view = new DataView(this.#bytes.buffer);
  }
}

/** Reads the records of a batch. Their names and data are in the batch's memory. */
export class BatchReader {
  readonly batch: Batch;
  readonly #all: Buffer;
  readonly #view: DataView;
  #at = 0;

  constructor(batch: Batch) {
    this.batch = batch;
    this.#all = Buffer.from(batch.bytes, 0, batch.sizeBytes);
    this.#view = new DataView(batch.bytes, 0, batch.sizeBytes);
  }

  /** Returns the next record; undefined after the last one. */
  next(): EntryRecord | undefined {
    const view = this.#view;
    const all = this.#all;
    const at = this.#at;
    if (at >= all.length) return undefined;
    if (this.batch.isData === true) {
      this.#at = all.length;
      return dataRecord(all);
    }
    const flags = view.getUint8(at + 2);
    const nameAt = at + HEAD_BYTES;
    const linkAt = nameAt + view.getUint32(at + 48, true);
    const dataAt = linkAt + view.getUint32(at + 52, true);
    const end = dataAt + view.getUint32(at + 56, true);
    this.#at = end;
    return {
      kind: KINDS[view.getUint8(at)] ?? "failure",
      type: TYPES[view.getUint8(at + 1)] ?? "other",
      mode: view.getUint32(at + 4, true),
      uid: (flags & HAS_UID) === 0 ? undefined : view.getFloat64(at + 8, true),
      gid: (flags & HAS_GID) === 0 ? undefined : view.getFloat64(at + 16, true),
      size: view.getFloat64(at + 24, true),
      mtimeSeconds: view.getFloat64(at + 32, true),
      mtimeNs: (flags & HAS_TIME_NS) === 0 ? undefined : view.getBigInt64(at + 40, true),
      sparse: (flags & IS_SPARSE) !== 0,
      name: nameAt === linkAt ? NONE : all.subarray(nameAt, linkAt),
      linkTarget: linkAt === dataAt ? NONE : all.subarray(linkAt, dataAt),
      data: dataAt === end ? NONE : all.subarray(dataAt, end),
    };
  }
}

/** Default properties of a record that describes no entry, such as a record of content. */
export const NO_ENTRY: Head = { type: "file", name: NONE, linkTarget: NONE, mode: 0, size: 0, mtimeSeconds: 0 };

function dataRecord(data: Buffer): EntryRecord {
  return { ...NO_ENTRY, kind: "data", sparse: false, data };
}
