import { isUtf8 } from "node:buffer";
import {
  chmodSync,
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  ftruncate,
  futimesSync,
  lchownSync,
  linkSync,
  lstatSync,
  lutimesSync,
  mkdirSync,
  openSync,
  rmSync,
  statSync,
  symlinkSync,
  unlinkSync,
  utimesSync,
  write,
  writeSync,
} from "node:fs";
import { setImmediate as nextTick } from "node:timers/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { errnoOf } from "../../shared/errors.ts";
import { hasHole, SparseFile } from "../../shared/sparse-file.ts";
import { DeferredDirectories } from "./deferred-directories.ts";
import { EntryError, entryErrorOf } from "./entry-error.ts";
import { TarError } from "./format.ts";
import { isHole } from "./holes.ts";
import { climbs, partsOf, withoutNul } from "./names.ts";
import { ownerIn, type Owners } from "./owners.ts";
import type { TarEntry } from "./read.ts";
import { currentUmask } from "./umask.ts";

/** Longest path of the kernel (limits.h). */
const PATH_MAX = 4_096;
/** Mode bits to keep. No setuid bit: a sandbox could leave programs that run as another user. */
export const MODE_MASK = 0o777;
const SPECIAL_BITS = 0o7000;

const NEW_FILE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
const PRIVATE_DIRECTORY = 0o700;
/** An owner or a group that stays (chown(2)). */
const UNCHANGED = 2 ** 32 - 1;
/** Directories that are remembered to be real; beyond that they are looked up again. */
const REMEMBERED = 65_536;
const writePiece = promisify(write);
const setSize = promisify(ftruncate);

/** What has been unpacked. */
export interface Unpacked {
  files: number;
  /** Content of the files. */
  bytes: number;
}

/** Files that are remembered for hard links to them. Links to further ones count as missing. */
const LINKABLE = 1_000_000;

/** How an archive is unpacked. Without owners, everything belongs to the user of this process. */
export interface UnpackOptions extends Owners {
  /**
   * Called for each entry that cannot be written here or whose content ended early; the rest is unpacked. Default: the
   * first such entry ends it.
   */
  readonly onFailure?: ((name: Buffer, error: EntryError) => void) | undefined;
  /** Permission bits that nothing gets. Default: the umask of this process. */
  readonly umask?: number | undefined;
  /**
   * What is there stays as it is, except that directories get new entries. Holds the names of directories that calls
   * with this set have made, each character a byte. Default: what is there is replaced.
   */
  readonly keepExisting?: Set<string> | undefined;
  /**
   * Takes hard links, to files that this call has written. Called where the file of one is not among them, such as an
   * excluded one: returns the link's name as a file of its own, or undefined, which makes it a failed entry.
   */
  readonly missingFile?: ((link: TarEntry) => Promise<TarEntry | undefined>) | undefined;
}

/** This machine does not take an entry: something conflicts with it, or a system call failed, whose error is the cause. */
export class UnpackError extends EntryError {
  override readonly name = "UnpackError";
}

/**
 * Entries that have arrived are written synchronously, without a turn of the event loop: signals and timers would wait
 * for thousands of small files.
 */
const LONGEST_TICK_MS = 50;

/**
 * Unpacks an archive, which may be hostile, below a directory, which is made where it is missing. Nothing outside of it
 * is touched: a name that climbs is refused, and no link is followed. A hard link is refused, too, unless asked for.
 * Ignores setuid bits. Rejects with TarError for the archive, with UnpackError for this machine, and with the entries'
 * own error.
 */
export async function unpack(
  root: string | Buffer,
  entries: AsyncIterable<TarEntry>,
  { onFailure, ...options }: UnpackOptions = {},
): Promise<Unpacked> {
  using target = new Target(root, options);
  const unpacked: Unpacked = { files: 0, bytes: 0 };
  const fail = (name: Buffer, error: unknown): void => {
    const failed = entryFailure(root.toString(), name, error);
    // Without its directory there is nothing to go on with.
    if (onFailure === undefined || name.length === 0 || !(failed instanceof EntryError)) throw failed;
    onFailure(name, failed);
  };
  let yieldedMs = performance.now();
  for await (const entry of entries) {
    await unpackEntry(target, entry, unpacked).catch((error: unknown) => fail(entry.name, error));
    if (performance.now() - yieldedMs < LONGEST_TICK_MS) continue;
    await nextTick();
    yieldedMs = performance.now();
  }
  target.finishDirectories(fail);
  return unpacked;
}

/** The failure of one entry; an error that ends the whole copy stays what it is. */
function entryFailure(root: string, name: Buffer, error: unknown): unknown {
  const failed = entryErrorOf(error);
  if (failed !== undefined) return failed;
  if (!(error instanceof Error && "syscall" in error)) return error;
  const path = name.length === 0 ? root : join(root, name.toString());
  const errno = errnoOf(error) ?? "EIO";
  return new UnpackError(errno, `cannot write ${path} on this machine: ${errno}`, { cause: error });
}

async function unpackEntry(target: Target, entry: TarEntry, unpacked: Unpacked): Promise<void> {
  // Before anything is done for each of its parts, of which a hostile one has millions.
  if (entry.name.length >= PATH_MAX)
    throw new UnpackError("ENAMETOOLONG", `a name of ${entry.name.length} bytes is too long for this machine`);
  const parts = partsOf(entry.name);
  if (entry.type === "directory") {
    target.addDirectory(parts, entry);
    return;
  }
  if (parts.length === 0) throw climbs(entry.name);
  const path = target.pathOf(parts);
  if (entry.type === "file") {
    if (!(await writeFile(path, entry, target))) return;
    target.remember(parts);
    unpacked.files += 1;
    unpacked.bytes += entry.size;
  } else if (entry.type === "symlink") {
    const made = target.make(path, () => symlinkSync(withoutNul(entry.linkTarget), path));
    if (made === undefined) return;
    const { uid, gid } = target.ownerOf(entry);
    if (uid !== undefined || gid !== undefined) lchownSync(path, uid ?? UNCHANGED, gid ?? UNCHANGED);
    lutimesSync(path, String(entry.mtimeSeconds), String(entry.mtimeSeconds));
  } else if (entry.type === "hard-link" && target.missingFile !== undefined) {
    const existing = target.fileOf(partsOf(entry.linkTarget));
    if (existing === undefined) {
      const file = await target.missingFile(entry);
      if (file === undefined)
        throw new UnpackError("ENOENT", `${path.toString()} is another name of a file that is not copied`);
      await unpackEntry(target, file, unpacked);
      target.substitute(partsOf(entry.linkTarget), parts);
    } else if (target.make(path, () => linkSync(existing, path)) !== undefined) unpacked.files += 1;
  } else
    throw new TarError(
      `the sandbox's answer has ${JSON.stringify(entry.name.toString())}, which is neither a file, a directory nor a symbolic link`,
    );
}

/** Paths below the directory that is unpacked into, in parts of which each character is a byte. */
class Target implements Disposable {
  readonly umask: number;
  readonly missingFile: UnpackOptions["missingFile"];
  readonly #options: UnpackOptions;
  readonly #root: Buffer;
  /** Files that this call has written, for hard links, and by which name they are here. */
  readonly #files = new Map<string, string>();
  /** Directories known to be no links. */
  readonly #real = new Set<string>();
  readonly #deferred = new DeferredDirectories();

  constructor(root: string | Buffer, options: UnpackOptions) {
    this.#root = Buffer.from(root);
    this.#options = options;
    this.umask = options.umask ?? currentUmask();
    this.missingFile = options.missingFile;
  }

  addDirectory(parts: readonly string[], entry: TarEntry): void {
    const isNew = this.#makeDirectories(parts);
    if (!isNew && this.#options.keepExisting?.has(parts.join("/")) === false) return;
    if (this.#options.keepExisting !== undefined) this.#options.keepExisting.add(parts.join("/"));
    const { mode, mtimeSeconds } = entry;
    const path = this.#join(parts);
    this.#deferred.add({ path, mode: mode & MODE_MASK & ~this.umask, mtimeSeconds, ...this.ownerOf(entry) });
  }

  ownerOf(entry: Pick<TarEntry, "uid" | "gid">): ReturnType<typeof ownerIn> {
    return ownerIn(this.#options, entry);
  }

  /** Makes an entry in place of what has its name, unless that is a directory. Undefined: what is there is to stay. */
  make<Made>(path: Buffer, make: () => Made): { readonly made: Made } | undefined {
    try {
      return { made: make() };
    } catch (error) {
      if (errnoOf(error) !== "EEXIST") throw error;
      if (this.#options.keepExisting !== undefined) return undefined;
      unlinkSync(path);
      return { made: make() };
    }
  }

  /** A file is written. */
  remember(parts: readonly string[]): void {
    const name = parts.join("/");
    if (this.missingFile !== undefined && this.#files.size < LINKABLE) this.#files.set(name, name);
  }

  /** A file that is not here has a second name, which is: further ones are links to that. */
  substitute(missing: readonly string[], parts: readonly string[]): void {
    if (this.#files.has(parts.join("/"))) this.#files.set(missing.join("/"), parts.join("/"));
  }

  /** The path of a file that was written; undefined: there is none. The directories above it are no links. */
  fileOf(parts: readonly string[]): Buffer | undefined {
    const name = this.#files.get(parts.join("/"));
    if (name === undefined) return undefined;
    const path = this.pathOf(name.split("/"));
    // Another entry may have taken its place.
    return lstatSync(path, { throwIfNoEntry: false })?.isFile() === true ? path : undefined;
  }

  /** The path of an entry. Makes the directories above it, none of which may be a link. */
  pathOf(parts: readonly string[]): Buffer {
    this.#makeDirectories(parts.slice(0, -1));
    return this.#join(parts);
  }

  /** Sets what had to wait. Calls `fail` for each that cannot be set. */
  finishDirectories(fail: (name: Buffer, error: unknown) => void): void {
    for (const { path, mode, mtimeSeconds, uid, gid } of this.#deferred.takeReversed())
      try {
        if (uid !== undefined || gid !== undefined) lchownSync(path, uid ?? UNCHANGED, gid ?? UNCHANGED);
        utimesSync(path, String(mtimeSeconds), String(mtimeSeconds));
        // The group of a setgid directory is this machine's affair, as is a sticky bit.
        chmodSync(path, (lstatSync(path).mode & SPECIAL_BITS) | mode);
      } catch (error) {
        fail(path.subarray(this.#root.length + 1), error);
      }
  }

  [Symbol.dispose](): void {
    this.#deferred[Symbol.dispose]();
  }

  /** Makes sure that every part of a path is a directory and no link. Returns whether the last one was made now. */
  #makeDirectories(parts: readonly string[]): boolean {
    let isNew = false;
    let known = parts.length;
    while (known >= 0 && !this.#real.has(parts.slice(0, known).join("/"))) known -= 1;
    for (let depth = known + 1; depth <= parts.length; depth++) {
      const above = parts.slice(0, depth);
      const path = this.#join(above);
      try {
        // As text where that is possible: the mkdirSync of some versions of Deno takes no Buffer.
        mkdirSync(isUtf8(path) ? path.toString() : path, PRIVATE_DIRECTORY);
        isNew = true;
      } catch (error) {
        if (errnoOf(error) !== "EEXIST") throw error;
        isNew = false;
      }
      // Follow a link that the user named; a link below it is the sandbox's.
      const found = depth === 0 ? statSync(path) : lstatSync(path);
      if (!found.isDirectory())
        throw new UnpackError("ENOTDIR", `${path.toString()} is in the way on this machine: it is not a directory`);
      if (this.#real.size >= REMEMBERED) this.#real.clear();
      this.#real.add(above.join("/"));
    }
    return isNew;
  }

  #join(parts: readonly string[]): Buffer {
    return Buffer.concat([this.#root, Buffer.from(["", ...parts].join("/"), "latin1")]);
  }
}

/** Returns whether it is written: what is there may be to stay. */
async function writeFile(
  path: Buffer,
  { readAll, content, pieces = content, ...entry }: TarEntry,
  target: Target,
): Promise<boolean> {
  const { mode, mtimeSeconds } = entry;
  const opened = target.make(path, () => openSync(path, NEW_FILE, 0o600));
  if (opened === undefined) return false;
  const { made: fd } = opened;
  try {
    const all = readAll?.();
    if (all !== undefined && !hasHole(all)) for (let at = 0; at < all.length;) at += writeSync(fd, all, at);
    else {
      // The holes of a sparse file may arrive as zeros; write them as holes again.
      const sparse = new SparseFile({
        write: (...bytes) => writePiece(fd, ...bytes),
        truncate: (size) => setSize(fd, size),
      });
      for await (const piece of all === undefined ? pieces : [all])
        await (isHole(piece) ? sparse.skip(piece.holeBytes) : sparse.write(piece));
    }
    const { uid, gid } = target.ownerOf(entry);
    if (uid !== undefined || gid !== undefined) fchownSync(fd, uid ?? UNCHANGED, gid ?? UNCHANGED);
    fchmodSync(fd, mode & MODE_MASK & ~target.umask);
    // As text: Node reads a negative number as "now".
    futimesSync(fd, String(mtimeSeconds), String(mtimeSeconds));
    return true;
  } catch (error) {
    // A part of a file is not to be taken for the whole.
    rmSync(path, { force: true });
    throw error;
  } finally {
    closeSync(fd);
  }
}
