import { lstatSync, readdirSync, readlinkSync, type Stats, statSync } from "node:fs";
import { fileContent, sparseContent } from "./content.ts";
import { isHole, type Piece } from "./holes.ts";
import type { TarEntry } from "./read.ts";

const NONE = Buffer.alloc(0);
const SLASH = Buffer.from("/");

/** A file, folder, link or other thing of this machine. */
export interface LocalEntry {
  /** From the folder on, with slashes, in bytes: it need not be UTF-8. Empty for the folder itself. */
  readonly name: Buffer;
  readonly path: Buffer;
  readonly stats: Stats;
}

/** Everything in a folder, itself first, parents before children, by name; follows no link below it. */
export function* localTree(root: string, name: Buffer = NONE): Generator<LocalEntry, void, undefined> {
  const path = joined(Buffer.from(root), name);
  // On this thread: a hand-over to another costs ten times as much, and nothing else waits for it.
  const stats = name.length === 0 ? statSync(path) : lstatSync(path);
  yield { name, path, stats };
  if (!stats.isDirectory()) return;
  const children = readdirSync(path, { encoding: "buffer" });
  for (const child of children.toSorted((one, other) => one.compare(other)))
    yield* localTree(root, joined(name, child));
}

/** Content that is counted, or refused, on its way. */
type Watch = <Part extends Piece>(content: AsyncIterable<Part>) => AsyncIterable<Part>;

/** An entry that an archive takes. */
type Archived = TarEntry & { readonly type: "file" | "directory" | "symlink"; readonly sparse: boolean };

/** It as an entry of an archive; undefined for a device, FIFO or socket. */
export function localEntry({ name, path, stats }: LocalEntry, watch: Watch): Archived | undefined {
  const type = stats.isFile() ? "file" : stats.isDirectory() ? "directory" : stats.isSymbolicLink() ? "symlink" : "";
  if (type === "") return undefined;
  const sizeBytes = type === "file" ? stats.size : 0;
  const sparse = type === "file" && hasHoles(stats);
  return {
    type,
    name,
    linkName: type === "symlink" ? readlinkSync(path, { encoding: "buffer" }) : NONE,
    mode: stats.mode,
    modifiedSeconds: stats.mtimeMs / 1_000,
    sizeBytes,
    sparse,
    content: watch(fileContent(path, sizeBytes)),
    pieces: sparse ? watch(sparseContent(path, sizeBytes)) : undefined,
  };
}

/** Whether a file has less on the disk than in it. */
export function hasHoles({ blocks, size }: Stats): boolean {
  return blocks * 512 < size;
}

/** The same content. Throws `shorter()` where it has fewer bytes: a part is not to be taken for the whole. */
export async function* whole<Part extends Piece>(
  content: AsyncIterable<Part>,
  sizeBytes: number,
  shorter: () => Error,
  onBytes?: (bytes: number) => void,
): AsyncGenerator<Part> {
  let leftBytes = sizeBytes;
  for await (const piece of content) {
    const bytes = isHole(piece) ? piece.holeBytes : piece.length;
    leftBytes -= bytes;
    onBytes?.(bytes);
    yield piece;
  }
  if (leftBytes > 0) throw shorter();
}

function joined(folder: Buffer, name: Buffer): Buffer {
  return folder.length === 0 || name.length === 0
    ? Buffer.concat([folder, name])
    : Buffer.concat([folder, SLASH, name]);
}
