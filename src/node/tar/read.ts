import {
  BLOCK_BYTES,
  damaged,
  ownerOf,
  paddingBytes,
  readHeader,
  readPax,
  TarError,
  type TarHeader,
  type TarType,
} from "./format.ts";
import type { Piece } from "./holes.ts";

/** An entry of an archive. The caller must read its content before requesting the next entry. */
export interface TarEntry extends TarHeader {
  readonly content: AsyncIterable<Buffer>;
  /**
   * The same bytes as `content`, but with holes in place of zeros; undefined if the holes are not known. Read either
   * `pieces` or `content`.
   */
  readonly pieces?: AsyncIterable<Piece> | undefined;
  /** Returns the whole content of a small file at once, if it is in memory already. Use either this or `content`. */
  readonly readAll?: (() => Buffer) | undefined;
}

/** Limit on the size of a long name or of a pax header. */
const META_LIMIT_BYTES = 1024 * 1024;

/** The form of a time in a pax header: seconds in decimal, with an optional sign and fraction (pax(1), mtime). */
const TIME = /^(-?)(\d{1,40})(?:\.(\d*))?$/;

const META_TYPES: ReadonlySet<TarType> = new Set(["pax", "pax-global", "gnu-name", "gnu-link"]);

type Overrides = Partial<Pick<TarHeader, "name" | "linkTarget" | "size" | "mtimeSeconds" | "mtimeNs" | "uid" | "gid">>;

/**
 * Reads the entries of a tar stream. Throws TarError if the stream is invalid, empty, or ends within an entry. Like GNU
 * tar, accepts a stream that ends directly after an entry, without the blocks of zeros.
 */
export async function* readTar(stream: AsyncIterable<Uint8Array>): AsyncGenerator<TarEntry> {
  const bytes = new ByteStream(stream);
  const globals: Overrides = {};
  let overrides: Overrides = {};
  for (let isFirst = true; isFirst || !(await bytes.isOver()); isFirst = false) {
    const header = readHeader(await bytes.exactly(BLOCK_BYTES));
    if (header === undefined) break;
    const entry = { ...header, ...globals, ...overrides };
    if (header.type === "gnu-sparse") throw sparse();
    if (META_TYPES.has(header.type)) {
      if (header.size > META_LIMIT_BYTES) throw damaged();
      const content = await bytes.exactly(header.size);
      await bytes.exactly(paddingBytes(header.size));
      Object.assign(header.type === "pax-global" ? globals : overrides, overridesOf(header, content));
      continue;
    }
    overrides = {};
    const part = bytes.part(entry.size);
    yield { ...entry, content: part };
    for await (const rest of part) void rest;
    await bytes.exactly(paddingBytes(entry.size));
  }
  // Also read the bytes after the archive's end, because the sender would otherwise wait until they are read.
  await bytes.skipToEnd();
}

function overridesOf({ type }: TarHeader, content: Buffer): Overrides {
  const text = content.at(-1) === 0 ? content.subarray(0, -1) : content;
  if (type === "gnu-name") return { name: text };
  if (type === "gnu-link") return { linkTarget: text };
  const values = readPax(content);
  if ([...values.keys()].some((key) => key.startsWith("GNU.sparse."))) throw sparse();
  const [name, linkTarget] = [values.get("path"), values.get("linkpath")];
  const [size, modified] = [values.get("size"), values.get("mtime")];
  const [uid, gid] = [values.get("uid"), values.get("gid")];
  return {
    ...(name && { name }),
    ...(linkTarget && { linkTarget }),
    ...(size && { size: decimal(size, /^\d{1,16}$/) }),
    ...(modified && timeOf(modified)),
    ...(uid && { uid: ownerOf(decimal(uid, /^\d{1,10}$/)) }),
    ...(gid && { gid: ownerOf(decimal(gid, /^\d{1,10}$/)) }),
  };
}

/**
 * Creates the error for a sparse file in GNU tar's format. In the archive, the content of such a file lacks the holes,
 * or begins with a map of the holes. If it were unpacked as ordinary content, the resulting file would be wrong.
 */
function sparse(): TarError {
  return new TarError("the archive has a sparse file in GNU tar's own format; create the archive without --sparse");
}

/**
 * Parses a decimal number. Any other text is an error, because a hostile sandbox may send anything as a size, and
 * waiting for NaN bytes would never end.
 */
function decimal(value: Buffer, form: RegExp): number {
  const text = value.toString("latin1");
  const number = form.test(text) ? Number(text) : NaN;
  if (!(Math.abs(number) <= Number.MAX_SAFE_INTEGER)) throw damaged();
  return number;
}

/**
 * Parses a time. Any value is accepted, even one that no file system supports: the code that uses the time takes the
 * nearest time that it can write.
 */
function timeOf(value: Buffer): Overrides {
  const [text, sign, whole = "0", fraction = ""] = TIME.exec(value.toString("latin1")) ?? [];
  if (text === undefined) throw damaged();
  const sizeNs = BigInt(`${whole}${fraction.slice(0, 9).padEnd(9, "0")}`);
  return { mtimeSeconds: Number(text), mtimeNs: sign === "-" ? -sizeNs : sizeNs };
}

/** Reads any number of bytes at a time from a stream of chunks. */
class ByteStream {
  readonly #source: AsyncIterator<Uint8Array>;
  #held: Buffer = Buffer.alloc(0);

  constructor(stream: AsyncIterable<Uint8Array>) {
    this.#source = stream[Symbol.asyncIterator]();
  }

  async exactly(length: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    for await (const part of this.part(length)) parts.push(part);
    return Buffer.concat(parts);
  }

  /** Returns the next bytes as they arrive. A second iteration continues where the first one stopped. */
  part(length: number): AsyncIterable<Buffer> {
    let left = length;
    const next = async (): Promise<IteratorResult<Buffer>> => {
      if (left === 0) return { done: true, value: undefined };
      const bytes = await this.#take(left);
      left -= bytes.length;
      return { done: false, value: bytes };
    };
    return { [Symbol.asyncIterator]: () => ({ next }) };
  }

  /** Whether the stream has ended. */
  async isOver(): Promise<boolean> {
    return this.#held.length === 0 && !(await this.#pull());
  }

  async skipToEnd(): Promise<void> {
    while ((await this.#source.next()).done !== true);
  }

  async #take(most: number): Promise<Buffer> {
    if (this.#held.length === 0 && !(await this.#pull())) throw new TarError("the tar stream ended early");
    const taken = this.#held.subarray(0, most);
    this.#held = this.#held.subarray(taken.length);
    return taken;
  }

  /** Reads more bytes. Returns false at the end of the stream. */
  async #pull(): Promise<boolean> {
    while (this.#held.length === 0) {
      const next = await this.#source.next();
      if (next.done === true) return false;
      this.#held = Buffer.from(next.value.buffer, next.value.byteOffset, next.value.byteLength);
    }
    return true;
  }
}
