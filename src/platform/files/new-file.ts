import { constants } from "node:fs";
import { type FileOwner, FileSystemError, type NewFile } from "../../domain/index.ts";
import { type Addon, errnoName, type SummingWriter } from "../../native/index.ts";
import type { Descriptor } from "./descriptor.ts";
import { type Folder, splitPath } from "./folder.ts";
import type { Leftovers } from "./leftovers.ts";
import type { FileThreads } from "./threads.ts";

/** Bits that the kernel clears silently where the caller may not set them. */
const SPECIAL_BITS = 0o7000;
/** More is not summed up on the event loop's thread: it would hold up the other calls. */
const SUM_HERE_BYTES = 256 * 1024;
/** Mode of a file while it is being written. */
const PRIVATE_MODE = 0o600;
/** O_TMPFILE of open(2), which Node has no constant for. */
const O_TMPFILE = 0o20000000 | constants.O_DIRECTORY;
const NAMED = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOCTTY;
const HERE = Buffer.from(".");
const ROOT = Buffer.from("/");
const NONE = Buffer.alloc(0);

/** What writing needs of the addon. */
export type WriterMaker = Pick<Addon, "SummingWriter">;

/** A name that nobody else has: `.svc-guest-<24 hex digits>.tmp`. */
function temporaryName(): Buffer {
  const { randomBytes } = process.getBuiltinModule("node:crypto");
  return Buffer.from(`.svc-guest-${randomBytes(12).toString("hex")}.tmp`);
}

/**
 * Creates a file in a folder, which is the file's from now on. Where there can be such, it is one without a name (O_TMPFILE
 * of open(2)): whatever happens to the agent before it is placed, nothing is left of it. Elsewhere it has a temporary name,
 * and what an agent that was killed left in the folder goes first.
 */
export async function createFile(
  folder: Folder,
  addon: WriterMaker,
  threads: FileThreads,
  leftovers: Leftovers,
): Promise<NewFile> {
  try {
    const unnamed = await createUnnamed(folder);
    if (unnamed !== undefined) return new PlacedFile(folder, unnamed, undefined, addon, threads);
    await leftovers.removeFrom(folder);
    const name = temporaryName();
    return new PlacedFile(folder, await folder.open("create", name, NAMED, PRIVATE_MODE), name, addon, threads);
  } catch (error) {
    await folder[Symbol.asyncDispose]();
    throw error;
  }
}

/** Undefined where the file system has no such files, or where the kernel would not let one be placed later on. */
async function createUnnamed(folder: Folder): Promise<Descriptor | undefined> {
  const flags = constants.O_WRONLY | O_TMPFILE;
  const file = await folder.open("create", HERE, flags, PRIVATE_MODE).catch(() => undefined);
  if (file === undefined || (await canBePlaced(file, folder))) return file;
  await file.close();
  return undefined;
}

/** "/" exists: who may link is told so, who may not is told otherwise. */
async function canBePlaced(file: Descriptor, folder: Folder): Promise<boolean> {
  try {
    await folder.place(file, ROOT, NONE);
    return false;
  } catch (error) {
    return error instanceof FileSystemError && error.errno === "EEXIST";
  }
}

/** A file that is written, finished and placed, whatever holds it until then. */
class PlacedFile implements NewFile {
  readonly #folder: Folder;
  readonly #file: Descriptor;
  /** While it has one. */
  #temporary: Buffer | undefined;
  readonly #threads: FileThreads;
  readonly #writer: SummingWriter;

  constructor(
    folder: Folder,
    file: Descriptor,
    temporary: Buffer | undefined,
    { SummingWriter }: WriterMaker,
    threads: FileThreads,
  ) {
    this.#folder = folder;
    this.#file = file;
    this.#temporary = temporary;
    this.#threads = threads;
    this.#writer = new SummingWriter(file.fd);
  }

  async write(bytes: Uint8Array): Promise<void> {
    const result = await this.#threads.step("write", () => {
      // One file alone is done sooner when its sum is made while another thread writes.
      const sumOnThread = this.#threads.busy || bytes.length > SUM_HERE_BYTES;
      return this.#writer.write(bytes, sumOnThread);
    });
    if (result < 0) throw new FileSystemError("write", errnoName(result));
  }

  sha256(): Uint8Array {
    const sum = this.#writer.takeSha256();
    if (sum === undefined)
      throw new Error("there is no SHA-256 of what was written: a write has not ended, or OpenSSL failed");
    return sum;
  }

  async setAttributes(owner: FileOwner, mode: number): Promise<void> {
    await this.#file.chown(owner);
    await this.#file.chmod(mode);
    if ((mode & SPECIAL_BITS) === 0) return;
    if ((await this.#file.attributes("chmod")).mode !== mode) throw new FileSystemError("chmod", "EPERM");
  }

  async sync(): Promise<void> {
    await this.#file.sync("sync");
  }

  async place(path: Uint8Array, exclusive: boolean): Promise<void> {
    const { name } = splitPath(path);
    if (this.#temporary === undefined) await this.#folder.place(this.#file, name, exclusive ? NONE : temporaryName());
    else await this.#folder.move(this.#temporary, name, exclusive);
    this.#temporary = undefined;
    await this.#folder.sync();
  }

  async dispose(): Promise<void> {
    if (this.#temporary !== undefined) await this.#folder.remove(this.#temporary, false);
    this.#temporary = undefined;
    await this.#file.close();
    await this.#folder[Symbol.asyncDispose]();
  }
}
