import { type BigIntStats, lstatSync, readdirSync, readlinkSync, statSync } from "node:fs";
import { errnoOf } from "../../shared/errors.ts";
import { fileContent, readStart, SMALL_BYTES, sparseContent } from "./content.ts";
import { becameShorter, EntryError } from "./entry-error.ts";
import { generatedContent, isGenerated } from "./generated.ts";
import { isHole, type Piece } from "./holes.ts";
import { ownerIn, type Owners } from "./owners.ts";
import type { TarHeader } from "./format.ts";
import { secondsNotBefore } from "./times.ts";

const NONE = Buffer.alloc(0);
const SLASH = 0x2f;
/**
 * How many entries are passed to `choose` in one call. A separate call for each entry would be slow, because an answer
 * from another thread takes about 0.1 ms.
 */
const CHOSEN_AT_ONCE = 256;
const MAX_SIZE_BYTES = BigInt(Number.MAX_SAFE_INTEGER);

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
  /**
   * Called with entries of one directory. Returns for each entry whether to include it. An excluded directory is
   * excluded with everything in it.
   */
  readonly choose?: ((entries: readonly LocalEntry[]) => readonly boolean[]) | undefined;
  /** Do not descend into other file systems. */
  readonly oneFileSystem?: boolean | undefined;
  /** Yield the targets of symbolic links in place of the links. */
  readonly followsLinks?: boolean | undefined;
}

/**
 * Walks a directory: yields the root itself first, parents before children, sorted by name. Does not follow links below
 * the root, unless `followsLinks` is set. Yields undefined for each entry that is skipped, so that the caller can send
 * earlier entries even while millions of entries are skipped. Throws the error of the system call if the root cannot be
 * read.
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
  /**
   * The directories above the current one, to detect a link that leads back to one of them. Undefined unless links are
   * followed.
   */
  readonly above: readonly BigIntStats[] | undefined;
};

function* below(children: Buffer[], directory: Buffer, walk: Walk): Generator<LocalEntry | undefined, void> {
  const found = candidates(children, directory, walk);
  for (const entry of walk.choose === undefined ? found : chosen(found, walk.choose)) {
    yield entry;
    if (entry === undefined) continue;
    const { name, path, stats } = entry;
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

/** Yields the entries of a directory. Yields undefined in place of an entry that is excluded or cannot be read. */
function* candidates(children: Buffer[], directory: Buffer, walk: Walk): Generator<LocalEntry | undefined, void> {
  for (const child of children.toSorted((one, other) => one.compare(other))) {
    const path = joined(directory, child);
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
      walk.onUnreadable(
        name,
        new EntryError("ELOOP", `${path.toString()} is a symbolic link to one of its own parent directories`),
      );
      yield undefined;
      continue;
    }
    yield { name, path, stats };
  }
}

/**
 * Yields each entry that `choose` accepts, and undefined in place of the others. Calls `choose` with many entries at
 * once.
 */
function* chosen(
  entries: Iterable<LocalEntry | undefined>,
  choose: (entries: readonly LocalEntry[]) => readonly boolean[],
): Generator<LocalEntry | undefined, void> {
  let some: LocalEntry[] = [];
  const accepted = (): (LocalEntry | undefined)[] => {
    const answers = some.length === 0 ? [] : choose(some);
    const all = some.map((entry, index) => (answers[index] === true ? entry : undefined));
    some = [];
    return all;
  };
  for (const entry of entries) {
    if (entry === undefined) yield undefined;
    else if (some.push(entry) === CHOSEN_AT_ONCE) yield* accepted();
  }
  yield* accepted();
}

/** Like Buffer.concat, but faster for two parts. */
function joined(directory: Buffer, child: Buffer): Buffer {
  const path = Buffer.allocUnsafe(directory.length + 1 + child.length);
  path.set(directory);
  path[directory.length] = SLASH;
  path.set(child, directory.length + 1);
  return path;
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

/**
 * A local entry that an archive can contain. Reading its content throws EntryError if the file cannot be read or became
 * shorter. This is a class for speed: creating an object with a closure for each property would take as long as reading
 * a small file.
 */
export class LocalTarEntry implements TarHeader {
  readonly type: "file" | "directory" | "symlink";
  readonly name: Buffer;
  readonly linkTarget: Buffer;
  readonly mode: number;
  readonly uid: number | undefined;
  readonly gid: number | undefined;
  readonly size: number;
  readonly mtimeSeconds: number;
  readonly mtimeNs: bigint;
  /** Whether a file uses less disk space than its size. */
  readonly sparse: boolean;
  readonly #path: Buffer;
  readonly #generated: Buffer | undefined;

  constructor(
    { name, path, stats }: LocalEntry,
    type: LocalTarEntry["type"],
    owners: Owners,
    generated: Buffer | undefined,
  ) {
    this.#path = path;
    this.#generated = generated;
    this.type = type;
    this.name = name;
    this.linkTarget = type === "symlink" ? orUnreadable(path, () => readlinkSync(path, { encoding: "buffer" })) : NONE;
    this.mode = Number(stats.mode);
    const { uid, gid } = ownerIn(owners, stats);
    this.uid = uid;
    this.gid = gid;
    this.size = type === "file" ? (generated?.length ?? Number(stats.size)) : 0;
    this.sparse = type === "file" && generated === undefined && Number(stats.blocks) * 512 < this.size;
    this.mtimeNs = stats.mtimeNs;
    this.mtimeSeconds = secondsNotBefore(stats.mtimeNs);
  }

  /**
   * Whether to read the content at once with `readInto`, because it is small or already in memory. Otherwise use
   * `pieces`.
   */
  get isSmall(): boolean {
    return this.size <= SMALL_BYTES || this.#generated !== undefined;
  }

  /** Reads the whole content into a buffer of the size of the content. */
  readInto(bytes: Buffer): void {
    const path = this.#path;
    const count = this.#generated?.copy(bytes) ?? orUnreadable(path, () => readStart(path, bytes));
    if (count < this.size) throw becameShorter(path.toString());
  }

  /** The content in pieces, with the holes of a sparse file. Each piece has memory of its own. */
  async *pieces(): AsyncGenerator<Piece> {
    const path = this.#path;
    let leftBytes = this.size;
    try {
      for await (const piece of this.sparse ? sparseContent(path, this.size) : fileContent(path, this.size)) {
        leftBytes -= isHole(piece) ? piece.holeBytes : piece.length;
        yield piece;
      }
    } catch (error) {
      throw unreadable(path, error);
    }
    if (leftBytes > 0) throw becameShorter(path.toString());
  }
}

/**
 * Converts a local entry to an archive entry. Returns undefined for a device, FIFO or socket. Throws EntryError for a
 * file that is too large, and for a symbolic link or a generated file (such as one in /proc) that cannot be read.
 *
 * @param owners decides which owner the archive entry gets
 */
export function localEntry(entry: LocalEntry, owners: Owners = {}): LocalTarEntry | undefined {
  const { path, stats } = entry;
  if (stats.isFile()) {
    if (stats.size > MAX_SIZE_BYTES) {
      const message = `${path.toString()} is too large to copy (EFBIG): a copy has at most 2^53 - 1 bytes`;
      throw new EntryError("EFBIG", message);
    }
    const generated = isGenerated(path, stats.dev) ? orUnreadable(path, () => generatedContent(path)) : undefined;
    return new LocalTarEntry(entry, "file", owners, generated);
  }
  if (stats.isDirectory()) return new LocalTarEntry(entry, "directory", owners, undefined);
  return stats.isSymbolicLink() ? new LocalTarEntry(entry, "symlink", owners, undefined) : undefined;
}

function orUnreadable<Value>(path: Buffer, call: () => Value): Value {
  try {
    return call();
  } catch (error) {
    throw unreadable(path, error);
  }
}
