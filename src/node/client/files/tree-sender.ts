import { FieldWriter } from "../../../shared/field-writer.ts";
import { itemsBytes, type SentItem, writeItems } from "../../../shared/tree-items.ts";
import { WriteTreeRequestSchema } from "../../../shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { FileType } from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import {
  type EntryError,
  entryErrorOf,
  EventLoopTurns,
  type Hole,
  isHole,
  type Piece,
  sendableTimeNs,
  withHoles,
} from "../../tar/index.ts";
import { wholeNumber } from "../arguments.ts";
import { encoded } from "../grpc/channel.ts";
import { invalidOption } from "../errors/errors.ts";
import { NS_PER_SECOND, type SentEntry, timeOfNanoseconds } from "./tree-entry.ts";
import { ANSWERED, type UntilAnswered } from "./write.ts";

/** Limit on the size of a file whose content is sent in the same message as its name and attributes, in bytes. */
const SMALL_BYTES = 64 * 1024;
/**
 * Limits on the size of a message, in bytes, and on the number of entries in it. A large file is sent in several
 * messages.
 */
const MESSAGE_BYTES = 256 * 1024;
const MESSAGE_ITEMS = 512;
/** How long an entry waits for further entries that fit into the same message. */
const LATE_MS = 50;
const NONE = new Uint8Array(0);

type Step = IteratorResult<SentEntry | undefined, unknown>;

/**
 * The entries of a tree. An iterator that skips entries may yield undefined in place of each skipped entry, so that the
 * sender can give other work of the event loop a turn. An asynchronous iterator may return an entry without a promise,
 * which takes less CPU time.
 */
export type SentEntries =
  | Iterable<SentEntry | undefined>
  | {
      [Symbol.asyncIterator](): { next(): Step | Promise<Step>; return?(): unknown };
    };

/**
 * Sends a message. Resolves when the next message may follow, or with ANSWERED once the agent has sent its final
 * answer.
 */
export type Write = (message: Buffer) => Promise<void | typeof ANSWERED>;

/** Parameters of a TreeSender. */
export interface SenderParts {
  readonly write: Write;
  readonly orAnswer: UntilAnswered;
  /**
   * Whether the agent supports holes (`holes`), and the message which reports that an entry's content could not be read
   * after its attributes were sent (`itemFailures`).
   */
  readonly takes: { readonly holes: boolean; readonly itemFailures: boolean };
  /**
   * Called with an entry whose content cannot be read. Sending continues with the next entry, unless this function
   * throws.
   */
  readonly onFailure: (entry: SentEntry, error: EntryError) => void;
  /** Called for each entry when its name and attributes are queued for sending. */
  readonly onSent?: ((entry: SentEntry) => void) | undefined;
}

/**
 * Thrown if an entry fails after its name and attributes were sent, and the agent is too old for the message that
 * reports such a failure. The caller must start over without that entry.
 */
export class Unsendable extends Error {
  readonly entry: SentEntry;
  readonly failed: EntryError;

  constructor(entry: SentEntry, failed: EntryError) {
    super(failed.message, { cause: failed });
    this.entry = entry;
    this.failed = failed;
  }
}

/**
 * Sends the entries of a tree until the agent has sent its final answer. Once that answer has arrived, the sender no
 * longer waits for slow entries.
 */
export class TreeSender {
  readonly #parts: SenderParts;
  #isAnswered = false;
  #items: SentItem[] = [];
  #bytes = 0;
  #late: NodeJS.Timeout | undefined;
  #writing: ReturnType<Write> = Promise.resolve();

  constructor(parts: SenderParts) {
    this.#parts = parts;
  }

  /**
   * Sends all entries. Closes their iterator in any case. Rejects with the error of the iterator. Rejects with
   * Unsendable if an entry fails and the agent is too old for the message that reports the failure.
   */
  async send(entries: SentEntries): Promise<void> {
    const iterator = Symbol.iterator in entries ? entries[Symbol.iterator]() : entries[Symbol.asyncIterator]();
    const turns = new EventLoopTurns();
    let isFinished = false;
    try {
      for (;;) {
        // Entries that have already arrived are read synchronously, so let other work of the event loop run from time
        // to time.
        if (turns.isDue) {
          if (this.#items.length > 0) await this.#flush();
          await turns.next();
        }
        // If the source is slow, such as an archive from a pipe, send the entries that have arrived.
        const step = iterator.next();
        if (step instanceof Promise && this.#items.length > 0)
          this.#late ??= setTimeout(() => void this.#flush(), LATE_MS);
        const next = step instanceof Promise ? await this.#parts.orAnswer(step) : step;
        if (next === ANSWERED || this.#isAnswered) return;
        isFinished = next.done === true;
        if (next.done === true) break;
        if (next.value !== undefined) await this.#add(next.value);
      }
      await this.#flush();
      await this.#writing;
    } finally {
      clearTimeout(this.#late);
      // Do not await the iterator's `return`: a generator runs `return` only after its pending `next`, which may never
      // settle.
      if (!isFinished) void Promise.resolve(iterator.return?.()).catch(() => undefined);
    }
  }

  async #add(entry: SentEntry): Promise<void> {
    if (entry.type === "file" && entry.size > SMALL_BYTES) return this.#addLarge(entry);
    let data: Uint8Array = NONE;
    if (entry.type === "file")
      try {
        data = entry.readAll?.() ?? (await wholeOf(entry));
      } catch (error) {
        this.#fail(entry, error);
        return;
      }
    if (entry.name.length === 0) return;
    this.#push(entry, data, data.length);
    if (this.#bytes >= MESSAGE_BYTES - SMALL_BYTES || this.#items.length >= MESSAGE_ITEMS) await this.#flush();
  }

  async #addLarge(entry: SentEntry): Promise<void> {
    const pieces = this.#piecesOf(entry)[Symbol.asyncIterator]();
    let isFinished = false;
    let isBegun = false;
    try {
      // Read the first bytes before sending the file's attributes, because most unreadable files fail here.
      let next = await pieces.next();
      isBegun = true;
      this.#push(entry, NONE, entry.size);
      await this.#flush();
      for (; next.done !== true && !this.#isAnswered; next = await pieces.next()) await this.#sendPiece(next.value);
      isFinished = next.done === true;
    } catch (error) {
      isFinished = true;
      if (!isBegun) this.#fail(entry, error);
      else await this.#failSent(entry, error);
    } finally {
      if (!isFinished) void Promise.resolve(pieces.return?.()).catch(() => undefined);
    }
  }

  async #sendPiece(piece: Piece): Promise<void> {
    if (isHole(piece)) this.#isAnswered = (await this.#parts.write(holeMessage(piece))) === ANSWERED;
    else
      for (let at = 0; at < piece.length && !this.#isAnswered; at += MESSAGE_BYTES)
        this.#isAnswered = (await this.#parts.write(dataMessage(piece.subarray(at, at + MESSAGE_BYTES)))) === ANSWERED;
  }

  #fail(entry: SentEntry, error: unknown): void {
    const failed = entryErrorOf(error);
    if (failed === undefined) throw error;
    this.#parts.onFailure(entry, failed);
  }

  /** Handles the failure of an entry whose attributes have been sent. */
  async #failSent(entry: SentEntry, error: unknown): Promise<void> {
    const failed = entryErrorOf(error);
    if (failed === undefined) throw error;
    if (!this.#parts.takes.itemFailures) throw new Unsendable(entry, failed);
    this.#parts.onFailure(entry, failed);
    this.#isAnswered = (await this.#parts.write(failureMessage(failed))) === ANSWERED;
  }

  /** Returns the content of a large file, with holes only if the agent supports them. Agents before 0.3.0 do not. */
  #piecesOf({ content, pieces, sparse }: SentEntry): AsyncIterable<Piece> {
    return this.#parts.takes.holes && sparse === true ? (pieces ?? withHoles(content)) : content;
  }

  #push(entry: SentEntry, data: Uint8Array, size: number): void {
    this.#items.push(itemOf(entry, data, size));
    this.#bytes += entry.name.length + data.length;
    this.#parts.onSent?.(entry);
  }

  async #flush(): Promise<void> {
    clearTimeout(this.#late);
    this.#late = undefined;
    const sent = this.#items;
    this.#items = [];
    this.#bytes = 0;
    if (sent.length === 0) return;
    // Wait only for the previous message, not for this one. The caller can then fill the next message while this one is
    // being sent.
    const before = this.#writing;
    this.#writing = this.#parts.write(itemsMessage(sent));
    this.#isAnswered = (await before) === ANSWERED;
  }
}

/** Reads a small file. A file that has grown since its size was determined is accepted up to SMALL_BYTES. */
async function wholeOf({ name, size, content }: SentEntry): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of content) {
    bytes += piece.length;
    if (bytes > SMALL_BYTES)
      throw invalidOption(
        "entries",
        `${JSON.stringify(name.toString())} has more bytes than its declared size, ${size}; declare its real size, or send only that many bytes`,
      );
    pieces.push(piece);
  }
  return pieces.length === 1 && pieces[0] !== undefined ? pieces[0] : Buffer.concat(pieces);
}

/** Limit on the bytes that the tag and the length of a protobuf field occupy. */
const FIELD_BYTES = 16;
const FIELD = WriteTreeRequestSchema.field;

function itemsMessage(items: readonly SentItem[]): Buffer {
  const sizeBytes = itemsBytes(items);
  const writer = new FieldWriter(sizeBytes);
  writeItems(writer, FIELD.items.number, items, sizeBytes);
  return writer.written();
}

function dataMessage(bytes: Uint8Array): Buffer {
  const writer = new FieldWriter(FIELD_BYTES + bytes.length);
  writer.bytes(FIELD.data.number, bytes);
  return writer.written();
}

function holeMessage({ holeBytes }: Hole): Buffer {
  return encoded(WriteTreeRequestSchema, { part: { case: "hole", value: BigInt(holeBytes) } });
}

function failureMessage({ errno }: EntryError): Buffer {
  return encoded(WriteTreeRequestSchema, { part: { case: "itemFailure", value: { errno } } });
}

function itemOf(entry: SentEntry, data: Uint8Array, size: number): SentItem {
  const { type, name, mode, uid, gid, mtimeSeconds, mtimeNs, sparse = false } = entry;
  const linkTarget = type === "symlink" || type === "hard-link" ? entry.linkTarget : NONE;
  // JavaScript callers may pass anything, and the encoder below does not check its input.
  const areBytes = [name, linkTarget, data].every((bytes) => bytes instanceof Uint8Array);
  if (
    !areBytes ||
    TYPES[type] === undefined ||
    !Number.isSafeInteger(size) ||
    !(mtimeSeconds === undefined || Number.isFinite(mtimeSeconds))
  )
    throw invalidOption("entries", `${JSON.stringify(String(name))} has a field of the wrong type (see SentEntry)`);
  return {
    path: name,
    type: TYPES[type],
    mode: mode === undefined ? mode : mode & 0o7777,
    uid: uid === undefined ? uid : wholeNumber(uid, "uid"),
    gid: gid === undefined ? gid : wholeNumber(gid, "gid"),
    mtime: timeOf(mtimeSeconds, mtimeNs),
    size,
    data,
    linkTarget,
    sparse,
  };
}

function timeOf(mtimeSeconds: number | undefined, mtimeNs: bigint | undefined): SentItem["mtime"] {
  const timeNs = mtimeNs ?? (mtimeSeconds === undefined ? undefined : wholeSecondsNs(mtimeSeconds));
  return timeNs === undefined ? undefined : timeOfNanoseconds(sendableTimeNs(timeNs));
}

/**
 * Converts a time to nanoseconds, without its fraction of a second. Nothing is lost: in an archive, only a pax header
 * can contain a fraction, and then `mtimeNs` has the exact time.
 */
function wholeSecondsNs(seconds: number): bigint {
  return BigInt(Math.floor(seconds)) * NS_PER_SECOND;
}

const TYPES = {
  file: FileType.REGULAR,
  "hard-link": FileType.REGULAR,
  directory: FileType.DIRECTORY,
  symlink: FileType.SYMLINK,
} as const;
