import { lstatSync, readdirSync, readlinkSync, type Stats, statSync } from "node:fs";
import { fileContent, firstBytes, SMALL_BYTES, sparseContent } from "./content.ts";
import { isHole, type Piece, withZeros } from "./holes.ts";
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
export function* localTree(root: string): Generator<LocalEntry, void, undefined> {
  const path = Buffer.from(root);
  const stats = statSync(path);
  yield { name: NONE, path, stats };
  if (stats.isDirectory()) yield* below(path, path.length + 1);
}

function* below(folder: Buffer, nameAt: number): Generator<LocalEntry, void, undefined> {
  // On this thread: a hand-over to another costs ten times as much, and nothing else waits for it.
  const children = readdirSync(folder, { encoding: "buffer" });
  for (const child of children.toSorted((one, other) => one.compare(other))) {
    const path = Buffer.concat([folder, SLASH, child]);
    const stats = lstatSync(path);
    yield { name: path.subarray(nameAt), path, stats };
    if (stats.isDirectory()) yield* below(path, nameAt);
  }
}

/** Who hears of content on its way, and with what its faults are thrown. */
export interface Watch {
  readonly onBytes?: (bytes: number) => void;
  /** For a file that became shorter: a part is not to be taken for the whole. */
  readonly shorter: (path: Buffer) => Error;
  /** For a file that cannot be read. Default: the error as it is. */
  readonly unreadable?: (path: Buffer, error: unknown) => Error;
}

/** An entry that an archive takes. */
export type LocalTarEntry = TarEntry & { readonly type: "file" | "directory" | "symlink"; readonly sparse: boolean };

/** It as an entry of an archive; undefined for a device, FIFO or socket. */
export function localEntry({ name, path, stats }: LocalEntry, watch: Watch): LocalTarEntry | undefined {
  const type = stats.isFile() ? "file" : stats.isDirectory() ? "directory" : stats.isSymbolicLink() ? "symlink" : "";
  if (type === "") return undefined;
  const size = type === "file" ? stats.size : 0;
  // Whether it has less on the disk than in it.
  const sparse = type === "file" && stats.blocks * 512 < size;
  const readAll = (): Buffer => {
    const bytes = size === 0 ? NONE : readable(path, watch, () => firstBytes(path, size));
    if (bytes.length < size) throw watch.shorter(path);
    watch.onBytes?.(size);
    return bytes;
  };
  return {
    type,
    name,
    linkTarget: type === "symlink" ? readlinkSync(path, { encoding: "buffer" }) : NONE,
    mode: stats.mode,
    mtimeSeconds: stats.mtimeMs / 1_000,
    size,
    sparse,
    readAll: size <= SMALL_BYTES ? readAll : undefined,
    get content() {
      return whole(fileContent(path, size), size, path, watch);
    },
    pieces: sparse ? whole(sparseContent(path, size), size, path, watch) : undefined,
  };
}

function readable<Value>(path: Buffer, { unreadable }: Watch, read: () => Value): Value {
  try {
    return read();
  } catch (error) {
    throw unreadable?.(path, error) ?? error;
  }
}

/** The same content, watched. */
export async function* whole<Part extends Piece>(
  content: AsyncIterable<Part>,
  sizeBytes: number,
  path: Buffer,
  watch: Watch,
): AsyncGenerator<Part> {
  let leftBytes = sizeBytes;
  try {
    for await (const piece of content) {
      const bytes = isHole(piece) ? piece.holeBytes : piece.length;
      leftBytes -= bytes;
      watch.onBytes?.(bytes);
      yield piece;
    }
  } catch (error) {
    throw watch.unreadable?.(path, error) ?? error;
  }
  if (leftBytes > 0) throw watch.shorter(path);
}

/**
 * A folder's entries, with itself before them, once the first has come or there is none; their content watched, by
 * their names.
 */
export async function* withRoot<Entry extends TarEntry>(
  root: () => Entry,
  entries: AsyncIterable<Entry>,
  watch: Watch,
): AsyncGenerator<Entry> {
  let isBegun = false;
  for await (const entry of entries) {
    if (!isBegun) yield root();
    isBegun = true;
    const { name, size, content, pieces = content, readAll } = entry;
    watch.onBytes?.(readAll === undefined ? 0 : size);
    const watched = whole<Piece>(pieces, size, name, watch);
    yield readAll === undefined ? { ...entry, pieces: watched, content: withZeros(watched) } : entry;
  }
  if (!isBegun) yield root();
}
