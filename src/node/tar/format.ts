import { printable } from "../../shared/printable.ts";

/** Block size of tar, in bytes (pax(1), ustar Interchange Format). */
export const BLOCK_BYTES = 512;

/** Type of an entry. Types that are not supported are "other". */
export type TarType =
  | "file"
  | "hard-link"
  | "symlink"
  | "directory"
  | "pax"
  | "pax-global"
  | "gnu-name"
  | "gnu-link"
  | "gnu-sparse"
  | "other";

const TYPE_BY_FLAG: Readonly<Record<string, TarType>> = {
  "0": "file",
  "\0": "file",
  "7": "file",
  "1": "hard-link",
  "2": "symlink",
  "5": "directory",
  x: "pax",
  g: "pax-global",
  S: "gnu-sparse",
  L: "gnu-name",
  K: "gnu-link",
};

/** The header fields that this module uses. Names are bytes, because they need not be UTF-8. */
export interface TarHeader {
  readonly type: TarType;
  readonly name: Buffer;
  readonly linkTarget: Buffer;
  readonly mode: number;
  /** User and group ids; undefined if they are unknown. */
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
  readonly size: number;
  readonly mtimeSeconds: number;
  /** The exact modification time in nanoseconds since 1970, if it is known. */
  readonly mtimeNs?: bigint | undefined;
}

/** Returns the number of padding bytes that follow content of the given size, up to the next block. */
export function paddingBytes(sizeBytes: number): number {
  return (BLOCK_BYTES - (sizeBytes % BLOCK_BYTES)) % BLOCK_BYTES;
}

/** Reads a header block; undefined for the block of zeros that ends an archive. Throws TarError if the block is invalid. */
export function readHeader(block: Buffer): TarHeader | undefined {
  if (block.every((byte) => byte === 0)) return undefined;
  if (readNumber(block, 148, 8) !== checksum(block)) throw damaged();
  const name = readText(block, 0, 100);
  const isUstar = block.toString("latin1", 257, 263) === "ustar\0";
  const size = readNumber(block, 124, 12);
  if (size < 0) throw damaged();
  const prefix = isUstar ? readText(block, 345, 155) : Buffer.alloc(0);
  const type = TYPE_BY_FLAG[String.fromCodePoint(block[156] ?? 0)] ?? "other";
  return {
    // Before ustar, a directory was a file whose name ends in a slash (pax(1), ustar Interchange Format, typeflag). But
    // an entry whose name has only slashes remains a file, as in GNU tar.
    type: type === "file" && name.at(-1) === SLASH && name.some((byte) => byte !== SLASH) ? "directory" : type,
    name: prefix.length === 0 ? name : Buffer.concat([prefix, Buffer.from("/"), name]),
    linkTarget: readText(block, 157, 100),
    mode: readNumber(block, 100, 8) & 0o7777,
    uid: readOwner(block, 108),
    gid: readOwner(block, 116),
    size,
    mtimeSeconds: readTime(block),
  };
}

/**
 * Writes a header block. A name longer than 100 bytes is truncated, so the caller must write a pax header with the full
 * name before it.
 */
export function writeHeader(header: TarHeader): Buffer {
  const flag = Object.entries(TYPE_BY_FLAG).find(([, type]) => type === header.type)?.[0];
  if (flag === undefined) throw new Error(`no tar type for ${header.type}`);
  const block = Buffer.alloc(BLOCK_BYTES);
  header.name.copy(block, 0, 0, 100);
  writeNumber(block, 100, 8, header.mode);
  writeNumber(block, 108, 8, header.uid ?? 0);
  writeNumber(block, 116, 8, header.gid ?? 0);
  writeNumber(block, 124, 12, header.size);
  writeNumber(block, 136, 12, header.mtimeSeconds);
  block.write(flag, 156, "latin1");
  header.linkTarget.copy(block, 157, 0, 100);
  block.write("ustar\x0000", 257, "latin1");
  block.write(`${checksum(block).toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return block;
}

/** Sum of all bytes of the header, with the checksum field itself counted as spaces. */
function checksum(block: Buffer): number {
  let sum = 0;
  for (const [i, byte] of block.entries()) sum += i >= 148 && i < 156 ? 0x20 : byte;
  return sum;
}

function readText(block: Buffer, at: number, length: number): Buffer {
  const field = block.subarray(at, at + length);
  const end = field.indexOf(0);
  return end < 0 ? field : field.subarray(0, end);
}

/** Thrown for an invalid archive, which a hostile sandbox may have made. */
export class TarError extends Error {
  override readonly name = "TarError";

  constructor(message: string, options?: ErrorOptions) {
    super(printable(message), options);
  }
}

export function damaged(): TarError {
  return new TarError("the tar stream is damaged");
}

/**
 * Reads an octal number, or, if the first bit is set, a number in GNU's base 256, in two's complement. Throws TarError
 * for anything else.
 */
function readNumber(block: Buffer, at: number, length: number): number {
  const number = readAnyNumber(block, at, length);
  if (!Number.isSafeInteger(number)) throw damaged();
  return number;
}

/**
 * Reads the time of an entry. Any value is accepted: the code that uses the time takes the nearest time that it can
 * write.
 */
function readTime(block: Buffer): number {
  return readAnyNumber(block, 136, 12);
}

/** Reads a number like `readNumber`, but accepts any size. A number above 2^53 is rounded. */
function readAnyNumber(block: Buffer, at: number, length: number): number {
  if (((block[at] ?? 0) & 0x80) !== 0) return readBinary(block.subarray(at, at + length));
  const digits = block.toString("latin1", at, at + length).replaceAll(/[\0 ]/g, "");
  if (!/^[0-7]*$/.test(digits)) throw damaged();
  return Number.parseInt(digits || "0", 8);
}

/** The highest uid that chown(2) accepts; the next number means "unchanged". */
const LAST_OWNER = 2 ** 32 - 2;

/** Returns the number if it is a valid user or group id; undefined for other numbers, which some programs write. */
export function ownerOf(number: number): number | undefined {
  return Number.isInteger(number) && number >= 0 && number <= LAST_OWNER ? number : undefined;
}

function readOwner(block: Buffer, at: number): number | undefined {
  try {
    return ownerOf(readNumber(block, at, 8));
  } catch {
    return undefined;
  }
}

function readBinary(bytes: Buffer): number {
  // The highest bit of the first byte only says that the number is binary (base 256). The next bit is the sign.
  const first = (bytes[0] ?? 0) & 0x7f;
  let value = (first & 0x40) === 0 ? first : first - 0x80;
  for (const byte of bytes.subarray(1)) value = value * 256 + byte;
  return value;
}

/** Writes a number in octal, or 0 if it does not fit. In the second case the pax header contains the number. */
function writeNumber(block: Buffer, at: number, length: number, value: number): void {
  const digits = Math.max(0, Math.floor(value)).toString(8);
  block.write((digits.length < length ? digits : "").padStart(length - 1, "0"), at, "latin1");
}

const SLASH = 0x2f;
const NEWLINE = 0x0a;
const SPACE = 0x20;
const EQUALS = 0x3d;

/** Values of a pax header (pax(1), Extended Header). They override the fields of the ordinary header that follows. */
export type PaxValues = ReadonlyMap<string, Buffer>;

/** Encodes a pax header as `length key=value` lines. */
export function writePax(values: PaxValues): Buffer {
  return Buffer.concat([...values].map(([key, value]) => paxLine(key, value)));
}

/** Formats a line of a pax header. The length at the beginning of the line includes its own digits. */
function paxLine(key: string, value: Buffer): Buffer {
  const rest = Buffer.concat([Buffer.from(` ${key}=`), value, Buffer.from("\n")]);
  let length = rest.length + 1;
  while (String(length).length + rest.length !== length) length = String(length).length + rest.length;
  return Buffer.concat([Buffer.from(String(length)), rest]);
}

/** Decodes the `length key=value` lines of a pax header. Throws TarError if they are invalid. */
export function readPax(content: Buffer): PaxValues {
  const values = new Map<string, Buffer>();
  for (let at = 0; at < content.length;) {
    const space = content.indexOf(SPACE, at);
    const digits = space < 0 ? "" : content.toString("latin1", at, space);
    const length = /^\d{1,9}$/.test(digits) ? Number(digits) : 0;
    const line = content.subarray(space + 1, at + length);
    const equals = line.indexOf(EQUALS);
    // Reject length 0, which would loop forever.
    if (length === 0 || at + length > content.length || equals < 0 || line.at(-1) !== NEWLINE) throw damaged();
    values.set(line.toString("utf8", 0, equals), line.subarray(equals + 1, -1));
    at += length;
  }
  return values;
}
