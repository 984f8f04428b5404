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
import { TarError } from "./format.ts";
import { isHole } from "./holes.ts";
import type { TarEntry } from "./read.ts";

/** Longest path of the kernel (limits.h). */
const PATH_MAX = 4_096;
/** Mode bits to keep. No setuid bit: a sandbox could leave programs that run as another user. */
export const MODE_MASK = 0o777;

const NEW_FILE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
const PRIVATE_FOLDER = 0o700;
const writePiece = promisify(write);
const setSize = promisify(ftruncate);
const SLASH = 0x2f;
const NONE = Buffer.alloc(0);

/** What has been unpacked. */
export interface Unpacked {
  files: number;
  /** Content of the files. */
  bytes: number;
}

/** This machine does not take an entry: something is in its way, or a system call failed, whose error is the cause. */
export class UnpackError extends Error {
  override readonly name = "UnpackError";
}

/**
 * Unpacks an archive, which may be hostile, below a folder, which is made where it is missing. Nothing outside of it is
 * touched: a name that climbs and a hard link are refused, and no link is followed. Ignores owners and setuid bits.
 * Rejects with TarError for the archive, with UnpackError for this machine, and with the entries' own error.
 */
export async function unpack(root: string, entries: AsyncIterable<TarEntry>): Promise<Unpacked> {
  const target = new Target(root);
  const unpacked: Unpacked = { files: 0, bytes: 0 };
  const untaken = (name: Buffer, error: unknown): unknown => {
    if (!(error instanceof Error && "syscall" in error)) return error;
    const path = name.length === 0 ? root : join(root, name.toString());
    return new UnpackError(`cannot write ${path} on this machine: ${errnoOf(error)}`, { cause: error });
  };
  for await (const entry of entries)
    await unpackEntry(target, entry, unpacked).catch((error: unknown) => {
      throw untaken(entry.name, error);
    });
  try {
    target.finishFolders();
  } catch (error) {
    throw untaken(NONE, error);
  }
  return unpacked;
}

async function unpackEntry(target: Target, entry: TarEntry, unpacked: Unpacked): Promise<void> {
  const parts = partsOf(entry.name);
  if (entry.type === "directory") {
    target.addFolder(parts, entry);
    return;
  }
  if (parts.length === 0) throw climbs(entry.name);
  const path = target.pathOf(parts);
  if (entry.type === "file") {
    await writeFile(path, entry);
    unpacked.files += 1;
    unpacked.bytes += entry.size;
  } else if (entry.type === "symlink") {
    inRoom(path, () => symlinkSync(withoutNul(entry.linkTarget), path));
    lutimesSync(path, String(entry.mtimeSeconds), String(entry.mtimeSeconds));
  } else
    throw new TarError(
      `the sandbox's answer has ${JSON.stringify(entry.name.toString())}, which is neither a file, a folder nor a symbolic link`,
    );
}

/** Paths below the folder that is unpacked into, in parts of which each character is a byte. */
class Target {
  readonly #root: Buffer;
  /** Folders known to be no links. */
  readonly #real = new Set<string>();
  /** For the end: a folder's mode may forbid to write into it, and writing changes its time. */
  readonly #folders: { readonly path: Buffer; readonly mode: number; readonly mtimeSeconds: number }[] = [];

  constructor(root: string) {
    this.#root = Buffer.from(root);
  }

  addFolder(parts: readonly string[], { mode, mtimeSeconds }: TarEntry): void {
    this.#makeFolders(parts);
    this.#folders.push({ path: this.#join(parts), mode: mode & MODE_MASK, mtimeSeconds });
  }

  /** The path of an entry. Makes the folders above it, none of which may be a link. */
  pathOf(parts: readonly string[]): Buffer {
    this.#makeFolders(parts.slice(0, -1));
    return this.#join(parts);
  }

  finishFolders(): void {
    for (const { path, mode, mtimeSeconds } of this.#folders.toReversed()) {
      utimesSync(path, String(mtimeSeconds), String(mtimeSeconds));
      chmodSync(path, mode);
    }
  }

  /** Makes sure that every part of a path is a folder and no link. */
  #makeFolders(parts: readonly string[]): void {
    let known = parts.length;
    while (known >= 0 && !this.#real.has(parts.slice(0, known).join("/"))) known -= 1;
    for (let depth = known + 1; depth <= parts.length; depth++) {
      const above = parts.slice(0, depth);
      const path = this.#join(above);
      try {
        mkdirSync(path, PRIVATE_FOLDER);
      } catch (error) {
        if (errnoOf(error) !== "EEXIST") throw error;
      }
      // Follow a link that the user named; a link below it is the sandbox's.
      const found = depth === 0 ? statSync(path) : lstatSync(path);
      if (!found.isDirectory()) throw new UnpackError(`${path.toString()} is in the way: it is no folder`);
      this.#real.add(above.join("/"));
    }
  }

  #join(parts: readonly string[]): Buffer {
    return Buffer.concat([this.#root, Buffer.from(["", ...parts].join("/"), "latin1")]);
  }
}

/** Parts of an entry's name. Throws TarError for one that is absolute or climbs, and for one that is none. */
function partsOf(name: Buffer): string[] {
  if (name.length >= PATH_MAX) throw new TarError(`the sandbox's answer has a name of ${name.length} bytes`);
  const parts = withoutNul(name).toString("latin1").split("/");
  if (name[0] === SLASH || parts.includes("..")) throw climbs(name);
  return parts.filter((part) => part !== "" && part !== ".");
}

/** Node would refuse it with an error that is no system call's. */
function withoutNul(name: Buffer): Buffer {
  if (name.includes(0))
    throw new TarError(`the sandbox's answer has the name ${JSON.stringify(name.toString())}, with a NUL`);
  return name;
}

function climbs(name: Buffer): TarError {
  return new TarError(
    `the sandbox's answer has the name ${JSON.stringify(name.toString())}, which leads out of the folder`,
  );
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

async function writeFile(path: Buffer, { readAll, content, pieces = content, ...entry }: TarEntry): Promise<void> {
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
    fchmodSync(fd, mode & MODE_MASK);
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
