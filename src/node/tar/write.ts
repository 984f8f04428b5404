import { BLOCK_BYTES, paddingBytes, type TarHeader, writeHeader, writePax } from "./format.ts";

const NAME_BYTES = 100;
/** The least number that eleven octal digits cannot hold: 8 GiB, or a time in 2242. They have no sign either. */
const OCTAL_LIMIT = 8 ** 11;

/** The blocks before an entry's content: its header, and a pax header before it for what that cannot hold. */
export function entryHead(header: TarHeader): Buffer {
  const { name, linkTarget, size, mtimeSeconds } = header;
  const values = new Map<string, Buffer>();
  if (name.length > NAME_BYTES) values.set("path", name);
  if (linkTarget.length > NAME_BYTES) values.set("linkpath", linkTarget);
  if (size >= OCTAL_LIMIT) values.set("size", Buffer.from(String(size)));
  if (mtimeSeconds < 0 || mtimeSeconds >= OCTAL_LIMIT) {
    values.set("mtime", Buffer.from(String(Math.floor(mtimeSeconds))));
  }
  if (values.size === 0) return writeHeader(header);
  const pax = writePax(values);
  const about = { ...header, name: Buffer.from("pax"), linkTarget: Buffer.alloc(0), size: pax.length };
  return Buffer.concat([writeHeader({ ...about, type: "pax" }), pax, entryEnd(pax.length), writeHeader(header)]);
}

/** The padding after an entry's content of that size. */
export function entryEnd(sizeBytes: number): Buffer {
  return Buffer.alloc(paddingBytes(sizeBytes));
}

/** The end of an archive. */
export const TAR_END: Buffer = Buffer.alloc(2 * BLOCK_BYTES);
