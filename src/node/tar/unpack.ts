import { isUtf8 } from "node:buffer";
import {
  chmodSync,
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  ftruncateSync,
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
  writeSync,
} from "node:fs";
import { join } from "node:path";
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
import { UnpackError } from "./unpack-error.ts";

/** The kernel's limit on paths (limits.h). */
const PATH_MAX = 4_096;
/**
 * The mode bits to keep. The setuid bit is not kept, because a sandbox could otherwise install programs that run as
 * another user.
 */
export const MODE_MASK = 0o777;
const SPECIAL_BITS = 0o7000;

const NEW_FILE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
const PRIVATE_DIRECTORY = 0o700;
/** The value of chown(2) for an owner or group that is not changed. */
const UNCHANGED = 2 ** 32 - 1;
/**
 * Limit on the directories that are remembered as real directories, not links. Further directories are checked each
 * time.
 */
const REMEMBERED = 65_536;

/** Totals of what has been unpacked. */
export interface Unpacked {
  files: number;
  /** Size of the content of all files, in bytes. */
  bytes: number;
}

/**
 * Limit on the files that are remembered for later hard links. A hard link to a file that is not remembered is treated
 * like a link to a missing file.
 */
const LINKABLE = 1_000_000;

/** Options of `unpack`. Without options about owners, everything belongs to the user of this process. */
export interface UnpackOptions extends Owners {
  /**
   * Called for each entry that cannot be written or whose content ended early; the other entries are still unpacked.
   * Without this callback, unpacking ends at the first such entry.
   */
  readonly onFailure?: ((name: Buffer, error: EntryError) => void) | undefined;
  /** Umask of the unpacked entries. Default: the umask of this process. */
  readonly umask?: number | undefined;
  /**
   * Keep existing entries instead of replacing them. Existing directories get new entries, but keep their attributes.
   * The call adds the names of the directories that it creates to this set, as latin1 strings. A later call with the
   * same set may set the attributes of these directories. Default: existing entries are replaced.
   */
  readonly keepExisting?: Set<string> | undefined;
  /**
   * Makes `unpack` accept hard links, which are an error otherwise. If this call has written the file to which a link
   * refers, creates the link. Otherwise, for example because the file was excluded, calls this function. It returns the
   * file as a separate entry with the name of the link. If it returns undefined, the link counts as failed.
   */
  readonly missingFile?: ((link: TarEntry) => Promise<TarEntry | undefined>) | undefined;
}

/**
 * Implements `unpack` with synchronous calls, which take less CPU time than asynchronous ones. They block the calling
 * thread: see `allowBlocking`.
 */
export async function unpackHere(
  root: string | Buffer,
  entries: Iterable<TarEntry> | AsyncIterable<TarEntry>,
  { onFailure, ...options }: UnpackOptions = {},
): Promise<Unpacked> {
  using target = new UnpackTarget(root, options);
  const unpacked: Unpacked = { files: 0, bytes: 0 };
  const fail = (name: Buffer, error: unknown): void => {
    const failed = entryFailure(root.toString(), name, error);
    // If the failed entry is the root directory, nothing more can be written.
    if (onFailure === undefined || name.length === 0 || !(failed instanceof EntryError)) throw failed;
    onFailure(name, failed);
  };
  for await (const entry of entries)
    await unpackEntry(target, entry, unpacked).catch((error: unknown) => fail(entry.name, error));
  target.finishDirectories(fail);
  return unpacked;
}

/** Converts an error about one entry to an EntryError. An error that ends the whole copy is returned unchanged. */
function entryFailure(root: string, name: Buffer, error: unknown): unknown {
  const failed = entryErrorOf(error);
  if (failed !== undefined) return failed;
  if (!(error instanceof Error && "syscall" in error)) return error;
  const path = name.length === 0 ? root : join(root, name.toString());
  const errno = errnoOf(error) ?? "EIO";
  return new UnpackError(errno, `cannot write ${path} on this machine: ${errno}`, { cause: error });
}

async function unpackEntry(target: UnpackTarget, entry: TarEntry, unpacked: Unpacked): Promise<void> {
  // Check the length before the name is split, because a hostile name may have millions of parts.
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
        throw new UnpackError("ENOENT", `${path.toString()} is a hard link to a file that was not copied`);
      await unpackEntry(target, file, unpacked);
      target.substitute(partsOf(entry.linkTarget), parts);
    } else if (target.make(path, () => linkSync(existing, path)) !== undefined) unpacked.files += 1;
  } else
    throw new TarError(
      `the sandbox's answer has ${JSON.stringify(entry.name.toString())}, which is neither a file, a directory nor a symbolic link`,
    );
}

/**
 * The directory to unpack into. A path below it is given as a list of its parts. Each part is a latin1 string, because
 * latin1 keeps every byte.
 */
class UnpackTarget implements Disposable {
  readonly umask: number;
  readonly missingFile: UnpackOptions["missingFile"];
  readonly #options: UnpackOptions;
  readonly #root: Buffer;
  /**
   * Maps the name in the archive of each file that this call has written to its name on disk. Hard links need these
   * names.
   */
  readonly #files = new Map<string, string>();
  /** Directories that have been checked not to be links. */
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

  /**
   * Creates an entry, and replaces an existing one that is not a directory. Returns undefined if an existing entry must
   * be kept.
   */
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

  /** Remembers that a file was written, so that later hard links to the file can be created. */
  remember(parts: readonly string[]): void {
    if (this.missingFile === undefined || this.#files.size >= LINKABLE) return;
    const name = parts.join("/");
    this.#files.set(name, name);
  }

  /**
   * Must be called when a hard link was written as a separate file because its target is missing. Later hard links to
   * the same target then become links to this separate file.
   */
  substitute(missing: readonly string[], parts: readonly string[]): void {
    if (this.#files.has(parts.join("/"))) this.#files.set(missing.join("/"), parts.join("/"));
  }

  /**
   * Returns the path of a file that was written; undefined if there is none. Checks that the directories above it are
   * not links.
   */
  fileOf(parts: readonly string[]): Buffer | undefined {
    const name = this.#files.get(parts.join("/"));
    if (name === undefined) return undefined;
    const path = this.pathOf(name.split("/"));
    // A later entry of the archive may have replaced the file by something else.
    return lstatSync(path, { throwIfNoEntry: false })?.isFile() === true ? path : undefined;
  }

  /** Returns the path of an entry. Creates the directories above it, none of which may be a link. */
  pathOf(parts: readonly string[]): Buffer {
    this.#makeDirectories(parts.slice(0, -1));
    return this.#join(parts);
  }

  /** Sets the deferred attributes of directories. Calls `fail` for each failure. */
  finishDirectories(fail: (name: Buffer, error: unknown) => void): void {
    for (const { path, mode, mtimeSeconds, uid, gid } of this.#deferred.takeReversed()) {
      try {
        if (uid !== undefined || gid !== undefined) lchownSync(path, uid ?? UNCHANGED, gid ?? UNCHANGED);
        utimesSync(path, String(mtimeSeconds), String(mtimeSeconds));
        // Keep the setgid and sticky bits that the directory already has on this machine.
        chmodSync(path, (lstatSync(path).mode & SPECIAL_BITS) | mode);
      } catch (error) {
        fail(path.subarray(this.#root.length + 1), error);
      }
    }
  }

  [Symbol.dispose](): void {
    this.#deferred[Symbol.dispose]();
  }

  /**
   * Creates the missing directories of a path, and checks that no part is a link. Returns whether the last one was
   * created by this call.
   */
  #makeDirectories(parts: readonly string[]): boolean {
    let isNew = false;
    let known = parts.length;
    while (known >= 0 && !this.#real.has(parts.slice(0, known).join("/"))) known -= 1;
    for (let depth = known + 1; depth <= parts.length; depth++) {
      const above = parts.slice(0, depth);
      const path = this.#join(above);
      try {
        // Pass a string if possible: in some versions of Deno, mkdirSync does not accept a Buffer.
        mkdirSync(isUtf8(path) ? path.toString() : path, PRIVATE_DIRECTORY);
        isNew = true;
      } catch (error) {
        if (errnoOf(error) !== "EEXIST") throw error;
        isNew = false;
      }
      // Only the root may be a symlink, because the user named it. A symlink below the root may come from the sandbox,
      // so it is refused.
      const found = depth === 0 ? statSync(path) : lstatSync(path);
      if (!found.isDirectory())
        throw new UnpackError("ENOTDIR", `${path.toString()} exists on this machine and is not a directory`);
      if (this.#real.size >= REMEMBERED) this.#real.clear();
      this.#real.add(above.join("/"));
    }
    return isNew;
  }

  #join(parts: readonly string[]): Buffer {
    return Buffer.concat([this.#root, Buffer.from(["", ...parts].join("/"), "latin1")]);
  }
}

/** Writes a file. Returns false if an existing entry was kept instead. */
async function writeFile(path: Buffer, entry: TarEntry, target: UnpackTarget): Promise<boolean> {
  const { mode, mtimeSeconds, readAll } = entry;
  const opened = target.make(path, () => openSync(path, NEW_FILE, 0o600));
  if (opened === undefined) return false;
  const { made: fd } = opened;
  try {
    const all = readAll?.();
    if (all !== undefined && !hasHole(all)) for (let at = 0; at < all.length;) at += writeSync(fd, all, at);
    else {
      // The holes of a sparse file may arrive as zeros; write them as holes.
      const sparse = new SparseFile({
        write: async (bytes, offset, length, position) => ({
          bytesWritten: writeSync(fd, bytes, offset, length, position),
        }),
        truncate: async (size) => ftruncateSync(fd, size),
      });
      for await (const piece of all === undefined ? (entry.pieces ?? entry.content) : [all])
        await (isHole(piece) ? sparse.skip(piece.holeBytes) : sparse.write(piece));
    }
    const { uid, gid } = target.ownerOf(entry);
    if (uid !== undefined || gid !== undefined) fchownSync(fd, uid ?? UNCHANGED, gid ?? UNCHANGED);
    fchmodSync(fd, mode & MODE_MASK & ~target.umask);
    // Pass the times as text, because Node treats a negative number as the current time.
    futimesSync(fd, String(mtimeSeconds), String(mtimeSeconds));
    return true;
  } catch (error) {
    // Do not leave a partial file, which could be mistaken for the whole one.
    rmSync(path, { force: true });
    throw error;
  } finally {
    closeSync(fd);
  }
}
