import { constants, opendir } from "node:fs";
import { promisify } from "node:util";
import type { FileOwner } from "../attributes.ts";
import { FileSystemError } from "../../domain/index.ts";
import { splitPath } from "../paths/names.ts";
import type { Descriptor } from "../paths/descriptor.ts";
import type { Folder } from "../paths/folder.ts";
import { FileWriter, type NewFileOptions } from "./file-writer.ts";
import { mountOf } from "../threads/mounts.ts";
import type { FileWork } from "../threads/work.ts";

/** Mode of a file while it is being written. */
const PRIVATE_MODE = 0o600;
/** O_TMPFILE of open(2), for which Node has no constant. */
const O_TMPFILE = 0o20000000 | constants.O_DIRECTORY;
const NAMED = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOCTTY;
const HERE = Buffer.from(".");
const ROOT = Buffer.from("/");
const NONE = Buffer.alloc(0);

/** Names of files before their placement, on file systems that have no files without a name. */
const TEMPORARY = /^\.svc-guest-[0-9a-f]{24}\.tmp$/;
/** No write pauses this long. A younger file may belong to a living agent, even of another sandbox. */
const AGE_NS = 3_600_000_000_000n;
/** Most entries of a folder that are checked: a write must not wait for a folder of millions. */
const ENTRIES_LIMIT = 10_000;
/** Checked folders that are remembered. At this number all are forgotten, and checked again. */
const FOLDERS_LIMIT = 1_024;
const openFolder = promisify(opendir);

/** A name that nobody else has, of the form TEMPORARY. */
export function temporaryName(): Buffer {
  const { randomBytes } = process.getBuiltinModule("node:crypto");
  return Buffer.from(`.svc-guest-${randomBytes(12).toString("hex")}.tmp`);
}

/**
 * Creates a file in a folder, and owns the folder from then on. Where the file system can, the file has no name
 * (O_TMPFILE of open(2)), so that nothing is left of it if the agent is killed. Elsewhere it has a temporary name, and
 * leftovers of killed agents are removed from the folder first.
 */
export async function createFile(
  folder: Folder,
  work: FileWork,
  leftovers: Leftovers,
  options: NewFileOptions,
): Promise<NewFile> {
  await using owned = new AsyncDisposableStack();
  owned.use(folder);
  let file = await createUnnamed(folder);
  let temporary: Buffer | undefined;
  if (file === undefined) {
    await leftovers.removeFrom(folder);
    temporary = temporaryName();
    file = await folder.open("create", temporary, NAMED, PRIVATE_MODE);
  }
  owned.use(file);
  const writer = new FileWriter(file.fd, options);
  owned.move();
  return new NewFile({ folder, file, writer, work }, temporary);
}

/**
 * Creates a file with content and attributes in one step, and owns the folder from then on. Throws FileSystemError
 * where that fails, also where the file would need a temporary name.
 */
export async function createSmallFile(
  folder: Folder,
  work: FileWork,
  entry: Uint8Array,
  exclusive: boolean,
): Promise<NewFile> {
  await using owned = new AsyncDisposableStack();
  owned.use(folder);
  const file = await folder.makeSmall(entry, exclusive);
  owned.move();
  return new NewFile({ folder, file, writer: undefined, work }, undefined);
}

/** Undefined where the file system has no files without a name, or the kernel would not let this be placed later. */
async function createUnnamed(folder: Folder): Promise<Descriptor | undefined> {
  const flags = constants.O_WRONLY | O_TMPFILE;
  const file = await folder.open("create", HERE, flags, PRIVATE_MODE).catch(() => undefined);
  if (file === undefined || (await canBePlaced(file, folder))) return file;
  await file[Symbol.asyncDispose]();
  return undefined;
}

/** Tries to link the file to "/": EEXIST means that linking is permitted, any other errno that it is not. */
async function canBePlaced(file: Descriptor, folder: Folder): Promise<boolean> {
  try {
    await folder.place(file, ROOT, NONE);
    return false;
  } catch (error) {
    return error instanceof FileSystemError && error.errno === "EEXIST";
  }
}

interface NewFileParts {
  readonly folder: Folder;
  readonly file: Descriptor;
  /** Undefined: its content is in it. */
  readonly writer: FileWriter | undefined;
  readonly work: FileWork;
}

/** A new file before it has its path: nobody sees it there before `place`. Call the methods one after the other. */
export class NewFile {
  readonly #parts: NewFileParts;
  /** Its temporary name, while it has one. */
  #temporary: Buffer | undefined;

  constructor(parts: NewFileParts, temporary: Buffer | undefined) {
    this.#parts = parts;
    this.#temporary = temporary;
  }

  /** Its file system; undefined without /proc. */
  get fileSystem(): string | undefined {
    return mountOf(this.#parts.file.fd)?.fileSystem;
  }

  /** Appends the pieces, one after another. The caller may reuse them, and the array, once it resolves. */
  async write(pieces: readonly Uint8Array[]): Promise<void> {
    const { file, work, writer } = this.#parts;
    await work.step({ step: "write", on: [file] }, async () => writer?.write(pieces));
  }

  /** Appends a hole to a file that is made sparse. */
  async skip(bytes: number): Promise<void> {
    const { file, work, writer } = this.#parts;
    await work.step({ step: "write", on: [file] }, async () => writer?.skip(bytes));
  }

  /** SHA-256 of all that was written; undefined where the file was created without. Call it once. */
  sha256(): Uint8Array | undefined {
    return this.#parts.writer?.sha256();
  }

  /** Sets owner, then mode (a change of owner clears setuid bits); both exactly, whatever the umask. */
  async setAttributes(owner: FileOwner, mode: number): Promise<void> {
    const { file } = this.#parts;
    await file.chown(owner);
    await file.chmod(mode);
    await file.checkMode(mode);
  }

  /** Sets the time of the last modification, in nanoseconds since 1970, to the microsecond. The last access is now. */
  async setModified(modifiedNs: bigint): Promise<void> {
    await this.#parts.file.setTimes(Date.now() / 1_000, Number(modifiedNs / 1_000n) / 1_000_000);
  }

  /** Forces content and attributes to the disk. A signal that is aborted before this has begun is thrown. */
  async sync(signal?: AbortSignal): Promise<void> {
    await this.#parts.file.sync("sync", signal);
  }

  /**
   * Gives the file its path, atomically, and syncs the folder, unless a tree is synced as a whole. Replaces what is
   * there; EEXIST with `exclusive`.
   */
  async place(path: Uint8Array, exclusive: boolean, syncs = true): Promise<void> {
    const { folder, file } = this.#parts;
    const { name } = splitPath(path);
    const temporary = exclusive ? NONE : temporaryName();
    if (this.#temporary === undefined && syncs && folder.canSync) return folder.settle(file, name, temporary);
    if (this.#temporary === undefined) await folder.place(file, name, temporary);
    else await folder.move(this.#temporary, name, exclusive);
    this.#temporary = undefined;
    if (syncs) await folder.sync();
  }

  /** Closes the file, and removes it unless it was placed. Never rejects. */
  async dispose(): Promise<void> {
    const { folder, file } = this.#parts;
    if (this.#temporary !== undefined) await folder.remove(this.#temporary, false);
    this.#temporary = undefined;
    await file[Symbol.asyncDispose]();
    await folder[Symbol.asyncDispose]();
  }
}

/** Removes temporary files that killed agents left, on file systems where a new file needs a name. */
export class Leftovers {
  /** Inodes of checked folders. At worst a folder of another file system with the same number is not checked. */
  readonly #seen = new Set<bigint>();

  /**
   * Removes them from a folder that this agent has not checked yet. They are regular files of the agent's own user with
   * an agent's temporary name, one link, and no change for an hour. Never rejects.
   */
  async removeFrom(folder: Folder): Promise<void> {
    try {
      const { inode } = await folder.attributes();
      if (this.#seen.has(inode)) return;
      if (this.#seen.size >= FOLDERS_LIMIT) this.#seen.clear();
      this.#seen.add(inode);
      for (const name of await folder.run("create", () => temporariesIn(folder))) {
        if (await isLeftover(folder, name)) await folder.remove(name, false);
      }
    } catch {
      // A folder that cannot be listed may still be writable.
    }
  }
}

async function temporariesIn(folder: Folder): Promise<Buffer[]> {
  const found: Buffer[] = [];
  let entries = 0;
  for await (const { name } of await openFolder(folder.link, { encoding: "latin1" })) {
    if (TEMPORARY.test(name)) found.push(Buffer.from(name));
    if (++entries === ENTRIES_LIMIT) break;
  }
  return found;
}

async function isLeftover(folder: Folder, name: Uint8Array): Promise<boolean> {
  // Follows no link. What cannot be opened is not a leftover.
  await using file = await folder
    .open("create", name, constants.O_RDONLY | constants.O_NONBLOCK)
    .catch(() => undefined);
  if (file === undefined) return false;
  const { type, uid, links, modifiedNs } = await file.attributes("create");
  const ageNs = BigInt(Date.now()) * 1_000_000n - modifiedNs;
  return type === "regular" && uid === process.geteuid?.() && links === 1n && ageNs > AGE_NS;
}
