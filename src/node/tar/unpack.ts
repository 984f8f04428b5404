import { isUtf8 } from "node:buffer";
import {
  chmodSync,
  closeSync,
  constants,
  fchmodSync,
  ftruncate,
  futimesSync,
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
import { join } from "node:path";
import { promisify } from "node:util";
import { errnoOf } from "../../shared/errors.ts";
import { hasHole, SparseFile } from "../../shared/sparse-file.ts";
import { DeferredDirectories } from "./deferred-directories.ts";
import { EntryError, entryErrorOf } from "./entry-error.ts";
import { TarError } from "./format.ts";
import { isHole } from "./holes.ts";
import { climbs, partsOf, withoutNul } from "./names.ts";
import type { TarEntry } from "./read.ts";
import { currentUmask } from "./umask.ts";

/** Longest path of the kernel (limits.h). */
const PATH_MAX = 4_096;
/** Mode bits to keep. No setuid bit: a sandbox could leave programs that run as another user. */
export const MODE_MASK = 0o777;
const SPECIAL_BITS = 0o7000;

const NEW_FILE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
const PRIVATE_DIRECTORY = 0o700;
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

/** How an archive is unpacked. */
export interface UnpackOptions {
  /**
   * Called for each entry that cannot be written here or whose content ended early; the rest is unpacked. Default: the
   * first such entry ends it.
   */
  readonly onFailure?: ((name: Buffer, error: EntryError) => void) | undefined;
  /** Permission bits that nothing gets. Default: the umask of this process. */
  readonly umask?: number | undefined;
}

/** This machine does not take an entry: something conflicts with it, or a system call failed, whose error is the cause. */
export class UnpackError extends EntryError {
  override readonly name = "UnpackError";
}

/**
 * Unpacks an archive, which may be hostile, below a directory, which is made where it is missing. Nothing outside of it
 * is touched: a name that climbs and a hard link are refused, and no link is followed. Ignores owners and setuid bits.
 * Rejects with TarError for the archive, with UnpackError for this machine, and with the entries' own error.
 */
export async function unpack(
  root: string,
  entries: AsyncIterable<TarEntry>,
  { onFailure, umask = currentUmask() }: UnpackOptions = {},
): Promise<Unpacked> {
  using target = new Target(root, umask);
  const unpacked: Unpacked = { files: 0, bytes: 0 };
  const fail = (name: Buffer, error: unknown): void => {
    const failed = entryFailure(root, name, error);
    // Without its directory there is nothing to go on with.
    if (onFailure === undefined || name.length === 0 || !(failed instanceof EntryError)) throw failed;
    onFailure(name, failed);
  };
  for await (const entry of entries)
    await unpackEntry(target, entry, unpacked).catch((error: unknown) => fail(entry.name, error));
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
    await writeFile(path, entry, target.umask);
    unpacked.files += 1;
    unpacked.bytes += entry.size;
  } else if (entry.type === "symlink") {
    inRoom(path, () => symlinkSync(withoutNul(entry.linkTarget), path));
    lutimesSync(path, String(entry.mtimeSeconds), String(entry.mtimeSeconds));
  } else
    throw new TarError(
      `the sandbox's answer has ${JSON.stringify(entry.name.toString())}, which is neither a file, a directory nor a symbolic link`,
    );
}

/** Paths below the directory that is unpacked into, in parts of which each character is a byte. */
class Target implements Disposable {
  readonly umask: number;
  readonly #root: Buffer;
  /** Directories known to be no links. */
  readonly #real = new Set<string>();
  readonly #deferred = new DeferredDirectories();

  constructor(root: string, umask: number) {
    this.#root = Buffer.from(root);
    this.umask = umask;
  }

  addDirectory(parts: readonly string[], { mode, mtimeSeconds }: TarEntry): void {
    this.#makeDirectories(parts);
    this.#deferred.add({ path: this.#join(parts), mode: mode & MODE_MASK & ~this.umask, mtimeSeconds });
  }

  /** The path of an entry. Makes the directories above it, none of which may be a link. */
  pathOf(parts: readonly string[]): Buffer {
    this.#makeDirectories(parts.slice(0, -1));
    return this.#join(parts);
  }

  /** Sets what had to wait. Calls `fail` for each that cannot be set. */
  finishDirectories(fail: (name: Buffer, error: unknown) => void): void {
    for (const { path, mode, mtimeSeconds } of this.#deferred.takeReversed())
      try {
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

  /** Makes sure that every part of a path is a directory and no link. */
  #makeDirectories(parts: readonly string[]): void {
    let known = parts.length;
    while (known >= 0 && !this.#real.has(parts.slice(0, known).join("/"))) known -= 1;
    for (let depth = known + 1; depth <= parts.length; depth++) {
      const above = parts.slice(0, depth);
      const path = this.#join(above);
      try {
        // As text where that is possible: the mkdirSync of some versions of Deno takes no Buffer.
        mkdirSync(isUtf8(path) ? path.toString() : path, PRIVATE_DIRECTORY);
      } catch (error) {
        if (errnoOf(error) !== "EEXIST") throw error;
      }
      // Follow a link that the user named; a link below it is the sandbox's.
      const found = depth === 0 ? statSync(path) : lstatSync(path);
      if (!found.isDirectory())
        throw new UnpackError("ENOTDIR", `${path.toString()} is in the way on this machine: it is not a directory`);
      if (this.#real.size >= REMEMBERED) this.#real.clear();
      this.#real.add(above.join("/"));
    }
  }

  #join(parts: readonly string[]): Buffer {
    return Buffer.concat([this.#root, Buffer.from(["", ...parts].join("/"), "latin1")]);
  }
}

/** Makes an entry, in place of what has its name, unless that is a folder. */
function inRoom<Made>(path: Buffer, make: () => Made): Made {
  try {
    return make();
  } catch (error) {
    if (errnoOf(error) !== "EEXIST") throw error;
    unlinkSync(path);
    return make();
  }
}

async function writeFile(
  path: Buffer,
  { readAll, content, pieces = content, ...entry }: TarEntry,
  umask: number,
): Promise<void> {
  const { mode, mtimeSeconds } = entry;
  const fd = inRoom(path, () => openSync(path, NEW_FILE, 0o600));
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
    fchmodSync(fd, mode & MODE_MASK & ~umask);
    // As text: Node reads a negative number as "now".
    futimesSync(fd, String(mtimeSeconds), String(mtimeSeconds));
  } catch (error) {
    // A part of a file is not to be taken for the whole.
    rmSync(path, { force: true });
    throw error;
  } finally {
    closeSync(fd);
  }
}
