import { type Piece, withZeros } from "../../tar/index.ts";
import { checkText } from "../arguments.ts";
import { invalidOption } from "../errors/errors.ts";
import { dateOf, isDate } from "../plain.ts";
import { type GuestPath, timeField } from "./path.ts";
import {
  type ArchiveEntry,
  bufferOf,
  type NewTreeEntry,
  NS_PER_SECOND,
  type SentEntry,
  timeOfNanoseconds,
  type TreeEntries,
  type TreeEntry,
} from "./tree-entry.ts";

const NONE = Buffer.alloc(0);
const NANOS_PER_SECOND = 1_000_000_000;
const NS_PER_MS = 1_000_000;

/**
 * A TreeEntry, made from an archive entry. `pieces` and `readAll` are getters of the class instead of own properties,
 * so that a copy such as `{ ...entry, content }` does not contain them. In such a copy, they would return the old
 * content.
 */
class ReadEntry implements TreeEntry {
  readonly type: TreeEntry["type"];
  readonly name: string;
  readonly rawName: Buffer;
  readonly linkTarget?: Buffer;
  readonly mode: number;
  readonly uid: number | undefined;
  readonly gid: number | undefined;
  readonly size: number;
  readonly mtime: Date;
  readonly mtimeNanos: number;
  readonly mtimeSeconds?: string;
  readonly sparse: boolean;
  readonly content: AsyncIterable<Buffer>;
  readonly #pieces: AsyncIterable<Piece>;
  readonly #readAll: (() => Buffer) | undefined;

  constructor(entry: ArchiveEntry) {
    const { content, pieces = content, linkTarget, mtimeNs = 0n } = entry;
    const { seconds, nanos } = timeOfNanoseconds(mtimeNs);
    const time = { seconds: BigInt(seconds), nanos };
    this.type = entry.type;
    this.name = entry.name.toString();
    this.rawName = entry.name;
    if (linkTarget.length > 0) this.linkTarget = linkTarget;
    this.mode = entry.mode;
    this.uid = entry.uid;
    this.gid = entry.gid;
    this.size = entry.size;
    this.mtime = dateOf(time);
    this.mtimeNanos = nanos;
    if (!isDate(time)) this.mtimeSeconds = String(time.seconds);
    this.sparse = entry.sparse ?? false;
    this.content = { [Symbol.asyncIterator]: () => withZeros(pieces)[Symbol.asyncIterator]() };
    this.#pieces = pieces;
    this.#readAll = entry.readAll;
  }

  get pieces(): AsyncIterable<Piece> {
    return this.#pieces;
  }

  get readAll(): (() => Buffer) | undefined {
    return this.#readAll;
  }
}

/** Converts an archive entry to the TreeEntry that `readTree` yields. */
export function treeEntryOf(entry: ArchiveEntry): TreeEntry {
  return new ReadEntry(entry);
}

/**
 * Converts the caller's entries for `writeTree`. The iteration throws GuestError (INVALID_ARGUMENT) at an invalid
 * entry.
 */
export function sentEntries(entries: TreeEntries): Iterable<SentEntry> | AsyncIterable<SentEntry> {
  return Symbol.iterator in entries ? mapped(entries) : mappedAsync(entries);
}

function* mapped(entries: Iterable<NewTreeEntry>): Generator<SentEntry> {
  for (const entry of entries) yield sentEntryOf(entry);
}

async function* mappedAsync(entries: AsyncIterable<NewTreeEntry>): AsyncGenerator<SentEntry> {
  for await (const entry of entries) yield sentEntryOf(entry);
}

function sentEntryOf(entry: NewTreeEntry): SentEntry {
  const { type, mode, uid, gid, sparse, linkTarget } = entry;
  const name = nameOf(entry);
  const target = linkTarget === undefined ? NONE : bytesOf(linkTarget, entry, "linkTarget");
  const head = { type, name, linkTarget: target, mode, uid, gid, mtimeNs: nanosecondsOf(entry), sparse };
  const { content = NONE } = entry;
  if (typeof content === "string" || content instanceof Uint8Array) {
    const bytes = contentOf(content);
    return { ...head, size: bytes.length, content: once(bytes), readAll: () => bytes };
  }
  const { size = type === "file" ? undefined : 0, pieces, readAll } = entry;
  if (size === undefined) throw invalid(entry, "requires a size, because its content is neither text nor bytes");
  return { ...head, size, content: buffers(content), pieces, readAll };
}

function nameOf(entry: NewTreeEntry): Buffer {
  const { name, rawName } = entry;
  const bytes = bytesOf(rawName ?? name, entry, rawName === undefined ? "name" : "rawName");
  return rawName === undefined || bytes.toString() === name ? bytes : bytesOf(name, entry, "name");
}

function bytesOf(path: GuestPath, entry: NewTreeEntry, field: string): Buffer {
  if (typeof path === "string") checkText(path, field);
  else if (!((path as unknown) instanceof Uint8Array))
    throw invalid(entry, `has a ${field} that is neither text nor bytes`);
  return contentOf(path);
}

/** Returns the modification time in nanoseconds since 1970; undefined if the entry has no time. */
function nanosecondsOf(entry: NewTreeEntry): bigint | undefined {
  const { mtime, mtimeNanos, mtimeSeconds } = entry;
  if (mtime === undefined) {
    if (mtimeSeconds !== undefined) throw invalid(entry, "has mtimeSeconds but no mtime; also give mtime, as a Date");
    return undefined;
  }
  if (!((mtime as unknown) instanceof Date)) throw invalid(entry, "has an mtime that is not a Date");
  if (mtimeNanos !== undefined && !(Number.isInteger(mtimeNanos) && mtimeNanos >= 0 && mtimeNanos < NANOS_PER_SECOND))
    throw invalid(entry, "has an mtimeNanos that is not a whole number from 0 to 999999999");
  if (mtimeSeconds !== undefined && !/^-?\d+$/.test(mtimeSeconds))
    throw invalid(entry, "has an mtimeSeconds that is not a whole number");
  const { seconds, nanos } = timeField(mtime, undefined);
  if (mtimeSeconds !== undefined && !isDate({ seconds }))
    return BigInt(mtimeSeconds) * NS_PER_SECOND + BigInt(mtimeNanos ?? 0);
  const isOfTime = mtimeNanos !== undefined && Math.floor(mtimeNanos / NS_PER_MS) * NS_PER_MS === nanos;
  return seconds * NS_PER_SECOND + BigInt(isOfTime ? mtimeNanos : nanos);
}

function invalid({ name }: NewTreeEntry, what: string): Error {
  return invalidOption("entries", `${JSON.stringify(Buffer.from(name ?? "").toString())} ${what}`);
}

function contentOf(content: string | Uint8Array): Buffer {
  return typeof content === "string" ? Buffer.from(content) : bufferOf(content);
}

async function* once(bytes: Buffer): AsyncGenerator<Buffer> {
  if (bytes.length > 0) yield bytes;
}

async function* buffers(content: AsyncIterable<Uint8Array | string>): AsyncGenerator<Buffer> {
  for await (const piece of content) yield contentOf(piece);
}
