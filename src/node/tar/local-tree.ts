import { type BigIntStats, lstatSync, readdirSync, readlinkSync, statSync } from "node:fs";
import { errnoOf } from "../../shared/errors.ts";
import { fileContent, firstBytes, SMALL_BYTES, sparseContent } from "./content.ts";
import { becameShorter, EntryError } from "./entry-error.ts";
import { generatedContent, isGenerated } from "./generated.ts";
import { isHole, type Piece } from "./holes.ts";
import { ownerIn, type Owners } from "./owners.ts";
import type { TarEntry } from "./read.ts";
import { secondsNotBefore } from "./times.ts";

const NONE = Buffer.alloc(0);
const SLASH = Buffer.from("/");

/** A local entry: a file, directory, link, device, FIFO or socket. */
export interface LocalEntry {
  /**
   * Path relative to the root directory, with slashes, in bytes because it need not be UTF-8. Empty for the root
   * itself.
   */
  readonly name: Buffer;
  readonly path: Buffer;
  readonly stats: BigIntStats;
}

/** Called with the relative path of an entry that cannot be read. */
type OnUnreadable = (name: Buffer, error: EntryError) => void;

/** Options of a walk of a local directory. */
export interface WalkOptions {
  /** Called for each entry that cannot be read or has vanished; the walk continues. */
  readonly onUnreadable: OnUnreadable;
  /** Whether to exclude an entry, with everything in it. */
  readonly isExcluded?: ((name: Buffer) => boolean) | undefined;
  /** Do not descend into other file systems. */
  readonly oneFileSystem?: boolean | undefined;
  /** Yield the targets of symbolic links in place of the links. */
  readonly followsLinks?: boolean | undefined;
}

/**
 * Walks a directory: yields the root itself first, parents before children, sorted by name. Does not follow links below
 * the root, unless `followsLinks` is set. Yields undefined for each entry that is skipped, so that the caller can let
 * the event loop run while millions of them are. Throws the error of the system call if the root cannot be read.
 */
export function* localTree(root: string | Buffer, options: WalkOptions): Generator<LocalEntry | undefined, void> {
  const path = Buffer.from(root);
  const stats = statSync(path, { bigint: true });
  yield { name: NONE, path, stats };
  if (!stats.isDirectory()) return;
  yield* below(readdirSync(path, { encoding: "buffer" }), path, {
    ...options,
    nameAt: path.length + 1,
    dev: options.oneFileSystem === true ? stats.dev : undefined,
    above: options.followsLinks === true ? [stats] : undefined,
  });
}

type Walk = WalkOptions & {
  readonly nameAt: number;
  readonly dev: bigint | undefined;
  /** If links are followed: the directories above the current one, to detect a link that leads back to them. */
  readonly above: readonly BigIntStats[] | undefined;
};

function* below(children: Buffer[], folder: Buffer, walk: Walk): Generator<LocalEntry | undefined, void> {
  // Synchronous: handing over to a thread of the pool costs ten times as much.
  for (const child of children.toSorted((one, other) => one.compare(other))) {
    const path = Buffer.concat([folder, SLASH, child]);
    const name = path.subarray(walk.nameAt);
    if (walk.isExcluded?.(name) === true) {
      yield undefined;
      continue;
    }
    const stats = read(
      path,
      () => (walk.above === undefined ? lstatSync : statSync)(path, { bigint: true }),
      (error) => walk.onUnreadable(name, error),
    );
    if (stats === undefined) {
      yield undefined;
      continue;
    }
    if (stats.isDirectory() && walk.above?.some(({ dev, ino }) => dev === stats.dev && ino === stats.ino) === true) {
      walk.onUnreadable(name, new EntryError("ELOOP", `${path.toString()} is a link to a directory above it`));
      yield undefined;
      continue;
    }
    yield { name, path, stats };
    if (!stats.isDirectory() || (walk.dev !== undefined && stats.dev !== walk.dev)) continue;
    const listed = read(
      path,
      () => readdirSync(path, { encoding: "buffer" }),
      (error) => walk.onUnreadable(name, error),
    );
    if (listed === undefined) continue;
    yield* below(listed, path, walk.above === undefined ? walk : { ...walk, above: [...walk.above, stats] });
  }
}

function read<Value>(path: Buffer, call: () => Value, failed: (error: EntryError) => void): Value | undefined {
  try {
    return call();
  } catch (error) {
    failed(unreadable(path, error));
    return undefined;
  }
}

/** Converts the error of a system call to an EntryError; rethrows other errors. */
function unreadable(path: Buffer, error: unknown): EntryError {
  const errno = errnoOf(error);
  if (error instanceof EntryError || errno === undefined) throw error;
  return new EntryError(errno, `cannot read ${path.toString()} on this machine: ${errno}`, { cause: error });
}

/** A local entry that an archive can contain. */
export type LocalTarEntry = TarEntry & { readonly type: "file" | "directory" | "symlink"; readonly sparse: boolean };

/**
 * Converts a local entry to an archive entry; returns undefined for a device, FIFO or socket. Throws EntryError if a
 * symbolic link, or a generated file such as one in /proc, cannot be read, or a file is too large. The content of a
 * file throws EntryError if the file cannot be read or became shorter.
 *
 * @param onBytes called with the size of each piece as it is read
 * @param owners decides which owner the archive entry gets
 */
export function localEntry(
  { name, path, stats }: LocalEntry,
  onBytes: (bytes: number) => void = () => undefined,
  owners: Owners = {},
): LocalTarEntry | undefined {
  const type = stats.isFile() ? "file" : stats.isDirectory() ? "directory" : stats.isSymbolicLink() ? "symlink" : "";
  if (type === "") return undefined;
  const linkTarget = type === "symlink" ? orUnreadable(path, () => readlinkSync(path, { encoding: "buffer" })) : NONE;
  const { mtimeNs } = stats;
  const { uid, gid } = ownerIn(owners, stats);
  const mode = Number(stats.mode);
  const head = { name, linkTarget, mode, uid, gid, mtimeNs, mtimeSeconds: secondsNotBefore(mtimeNs) };
  if (type !== "file") return { ...head, type, size: 0, sparse: false, readAll: () => NONE, content: nothing() };
  if (isGenerated(path, stats.dev)) {
    const bytes = orUnreadable(path, () => generatedContent(path));
    const readAll = (): Buffer => {
      onBytes(bytes.length);
      return bytes;
    };
    return { ...head, type, size: bytes.length, sparse: false, readAll, content: once(readAll) };
  }
  const size = Number(stats.size);
  if (!Number.isSafeInteger(size))
    throw new EntryError("EFBIG", `${path.toString()} is too large to copy (EFBIG): a copy has at most 2^53 - 1 bytes`);
  // A file is sparse if it uses less disk space than its size.
  const sparse = Number(stats.blocks) * 512 < size;
  const readAll = (): Buffer => {
    const bytes = size === 0 ? NONE : orUnreadable(path, () => firstBytes(path, size));
    if (bytes.length < size) throw becameShorter(path.toString());
    onBytes(size);
    return bytes;
  };
  return {
    ...head,
    type,
    size,
    sparse,
    readAll: size <= SMALL_BYTES ? readAll : undefined,
    get content() {
      return watched(fileContent(path, size), size, path, onBytes);
    },
    pieces: sparse ? watched(sparseContent(path, size), size, path, onBytes) : undefined,
  };
}

function orUnreadable<Value>(path: Buffer, call: () => Value): Value {
  try {
    return call();
  } catch (error) {
    throw unreadable(path, error);
  }
}

async function* nothing(): AsyncGenerator<Buffer> {
  // No content.
}

async function* once(readAll: () => Buffer): AsyncGenerator<Buffer> {
  yield readAll();
}

/** Passes a local file's content through, counts it, and throws EntryError if it ends early. */
async function* watched<Part extends Piece>(
  content: AsyncIterable<Part>,
  sizeBytes: number,
  path: Buffer,
  onBytes: (bytes: number) => void,
): AsyncGenerator<Part> {
  let leftBytes = sizeBytes;
  try {
    for await (const piece of content) {
      const bytes = isHole(piece) ? piece.holeBytes : piece.length;
      leftBytes -= bytes;
      onBytes(bytes);
      yield piece;
    }
  } catch (error) {
    throw unreadable(path, error);
  }
  if (leftBytes > 0) throw becameShorter(path.toString());
}
