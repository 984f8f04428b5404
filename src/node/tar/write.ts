import { BLOCK_BYTES, paddingBytes, type TarHeader, writeHeader, writePax } from "./format.ts";

const NAME_BYTES = 100;
/**
 * The smallest number that eleven octal digits cannot express: 8 GiB, or a time in 2242. Negative numbers cannot be
 * expressed either.
 */
const OCTAL_LIMIT = 8 ** 11;
/** The smallest owner id that seven octal digits cannot express. */
const OWNER_LIMIT = 8 ** 7;
const NS_PER_SECOND = 1_000_000_000n;

/**
 * Returns the blocks before an entry's content: the header and, before it, a pax header with the values for which the
 * header has no room.
 */
export function entryHead(header: TarHeader): Buffer {
  const { name, linkTarget, size, mtimeSeconds, mtimeNs, uid = 0, gid = 0 } = header;
  const values = new Map<string, Buffer>();
  if (name.length > NAME_BYTES) values.set("path", name);
  if (linkTarget.length > NAME_BYTES) values.set("linkpath", linkTarget);
  if (size >= OCTAL_LIMIT) values.set("size", Buffer.from(String(size)));
  if (uid >= OWNER_LIMIT) values.set("uid", Buffer.from(String(uid)));
  if (gid >= OWNER_LIMIT) values.set("gid", Buffer.from(String(gid)));
  const timeNs = mtimeNs ?? BigInt(Math.floor(mtimeSeconds)) * NS_PER_SECOND;
  // The header has room only for whole seconds, so a fraction needs a pax record. Without the fraction, the copy would
  // be older than its source.
  if (mtimeSeconds < 0 || mtimeSeconds >= OCTAL_LIMIT || timeNs % NS_PER_SECOND !== 0n)
    values.set("mtime", Buffer.from(decimal(timeNs)));
  if (values.size === 0) return writeHeader(header);
  const pax = writePax(values);
  const about = { ...header, name: Buffer.from("pax"), linkTarget: Buffer.alloc(0), size: pax.length };
  return Buffer.concat([writeHeader({ ...about, type: "pax" }), pax, entryEnd(pax.length), writeHeader(header)]);
}

/** Formats a time as decimal seconds, with as many fractional digits as necessary. */
function decimal(timeNs: bigint): string {
  const [sign, positive] = timeNs < 0n ? ["-", -timeNs] : ["", timeNs];
  const fraction = String(positive % NS_PER_SECOND)
    .padStart(9, "0")
    .replace(/0+$/, "");
  return `${sign}${positive / NS_PER_SECOND}${fraction === "" ? "" : "."}${fraction}`;
}

/** Returns the zeros that fill the last block of an entry's content. */
export function entryEnd(sizeBytes: number): Buffer {
  return Buffer.alloc(paddingBytes(sizeBytes));
}

/** The blocks of zeros that end an archive. */
export const TAR_END: Buffer = Buffer.alloc(2 * BLOCK_BYTES);
