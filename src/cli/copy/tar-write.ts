import { createReadStream } from "node:fs";
import { readlink } from "node:fs/promises";
import { CliError } from "../errors.ts";
import { type LocalEntry, locally } from "./local-tree.ts";
import { BLOCK_BYTES, paddingBytes, type TarHeader, type TarType, writeHeader, writePax } from "../../tar/index.ts";

const NAME_BYTES = 100;
/** What 11 octal digits hold. */
const SIZE_LIMIT_BYTES = 8 * 1024 ** 3;
const NOTHING = Buffer.alloc(0);
const ROOT_NAME = Buffer.from("./");
const SLASH = Buffer.from("/");

/** What a local entry is in an archive; undefined for what is not copied (devices, sockets, FIFOs). */
export function tarTypeOf({ stats }: LocalEntry): TarType | undefined {
  if (stats.isFile()) return "file";
  if (stats.isDirectory()) return "directory";
  return stats.isSymbolicLink() ? "symlink" : undefined;
}

/** One entry: its headers, its content, of whose pieces `progress` hears, and the padding after it. */
export async function* tarEntry(
  entry: LocalEntry,
  type: TarType,
  progress: (bytes: number) => void,
): AsyncGenerator<Buffer> {
  const { stats, path } = entry;
  const sizeBytes = type === "file" ? stats.size : 0;
  const end = type === "directory" && entry.name.length > 0 ? SLASH : NOTHING;
  const name = Buffer.concat([ROOT_NAME, entry.name, end]);
  const linkName = type === "symlink" ? await locally(path, readlink(path, { encoding: "buffer" })) : NOTHING;
  const mode = stats.mode & 0o7777;
  yield* headers({ type, name, linkName, mode, sizeBytes, modifiedSeconds: stats.mtimeMs / 1000 });
  if (sizeBytes === 0) return;
  let sent = 0;
  for await (const chunk of createReadStream(path, { end: sizeBytes - 1, highWaterMark: 256 * 1024 })) {
    sent += (chunk as Buffer).length;
    progress((chunk as Buffer).length);
    yield chunk as Buffer;
  }
  if (sent < sizeBytes) throw new CliError(`${path.toString()} became shorter while it was being copied; copy again`);
  yield Buffer.alloc(paddingBytes(sizeBytes));
}

/** What ends an archive. */
export const TAR_END: Buffer = Buffer.alloc(2 * BLOCK_BYTES);

function* headers(header: TarHeader): Generator<Buffer> {
  const values = new Map<string, Buffer>();
  if (header.name.length > NAME_BYTES) values.set("path", header.name);
  if (header.linkName.length > NAME_BYTES) values.set("linkpath", header.linkName);
  if (header.sizeBytes >= SIZE_LIMIT_BYTES) values.set("size", Buffer.from(String(header.sizeBytes)));
  // Before 1970 there is nothing in octal digits.
  if (header.modifiedSeconds < 0) values.set("mtime", Buffer.from(String(Math.floor(header.modifiedSeconds))));
  if (values.size > 0) {
    const pax = writePax(values);
    const about = {
      ...header,
      type: "pax",
      name: Buffer.from("pax"),
      linkName: NOTHING,
      sizeBytes: pax.length,
    } as const;
    yield Buffer.concat([writeHeader(about), pax, Buffer.alloc(paddingBytes(pax.length))]);
  }
  yield writeHeader(header);
}
