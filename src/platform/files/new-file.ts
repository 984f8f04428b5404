import { constants } from "node:fs";
import { type FileOwner, FileSystemError, type NewFile, type NewFileOptions } from "../../domain/index.ts";
import { type Addon, errnoName, NO_SUM, SUM_HERE, SUM_ON_THREAD, type SummingWriter } from "../../native/index.ts";
import type { Descriptor } from "./descriptor.ts";
import { type Folder, splitPath } from "./folder.ts";
import type { Leftovers } from "./leftovers.ts";
import { SparseWriter } from "./sparse-writer.ts";
import type { FileThreads } from "./threads.ts";

/** Bits that the kernel clears silently where the caller may not set them. */
const SPECIAL_BITS = 0o7000;
/** What is hashed on the event loop's thread at most: more would hold up other calls. */
const SUM_HERE_BYTES = 512 * 1024;
/** Mode of a file while it is being written. */
const PRIVATE_MODE = 0o600;
/** O_TMPFILE of open(2), for which Node has no constant. */
const O_TMPFILE = 0o20000000 | constants.O_DIRECTORY;
const NAMED = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOCTTY;
const HERE = Buffer.from(".");
const ROOT = Buffer.from("/");
const NONE = Buffer.alloc(0);

/** The part of the addon that writing uses. */
export type WriterMaker = Pick<Addon, "SummingWriter">;

/** A name that nobody else has: `.svc-guest-<24 hex digits>.tmp`. */
function temporaryName(): Buffer {
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
  addon: WriterMaker,
  threads: FileThreads,
  leftovers: Leftovers,
  { sparse, sha256 }: NewFileOptions,
): Promise<NewFile> {
  const placed = (file: Descriptor, name: Buffer | undefined): NewFile => {
    const writer = sparse ? new SparseWriter(file.fd) : new addon.SummingWriter(file.fd);
    return new PlacedFile(folder, file, name, writer, sha256, threads);
  };
  try {
    const unnamed = await createUnnamed(folder);
    if (unnamed !== undefined) return placed(unnamed, undefined);
    await leftovers.removeFrom(folder);
    const name = temporaryName();
    return placed(await folder.open("create", name, NAMED, PRIVATE_MODE), name);
  } catch (error) {
    await folder[Symbol.asyncDispose]();
    throw error;
  }
}

/** Undefined where the file system has no files without a name, or the kernel would not let this one be placed later. */
async function createUnnamed(folder: Folder): Promise<Descriptor | undefined> {
  const flags = constants.O_WRONLY | O_TMPFILE;
  const file = await folder.open("create", HERE, flags, PRIVATE_MODE).catch(() => undefined);
  if (file === undefined || (await canBePlaced(file, folder))) return file;
  await file.close();
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

/** A new file, with or without a temporary name until it is placed. */
class PlacedFile implements NewFile {
  readonly #folder: Folder;
  readonly #file: Descriptor;
  /** Its temporary name, while it has one. */
  #temporary: Buffer | undefined;
  readonly #threads: FileThreads;
  readonly #writer: SummingWriter;
  readonly #hashes: boolean;

  constructor(
    folder: Folder,
    file: Descriptor,
    temporary: Buffer | undefined,
    writer: SummingWriter,
    hashes: boolean,
    threads: FileThreads,
  ) {
    this.#folder = folder;
    this.#file = file;
    this.#temporary = temporary;
    this.#threads = threads;
    this.#writer = writer;
    this.#hashes = hashes;
  }

  async write(pieces: readonly Uint8Array[]): Promise<void> {
    const result = await this.#threads.step("write", () => {
      if (!this.#hashes) return this.#writer.write(pieces, NO_SUM);
      // For a single file it is faster to hash here while another thread writes.
      const sizeBytes = pieces.reduce((sum, { length }) => sum + length, 0);
      const onThread = this.#threads.busy || sizeBytes > SUM_HERE_BYTES;
      return this.#writer.write(pieces, onThread ? SUM_ON_THREAD : SUM_HERE);
    });
    if (result < 0) throw new FileSystemError("write", errnoName(result));
  }

  sha256(): Uint8Array | undefined {
    if (!this.#hashes) return undefined;
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

  async setModified(modifiedNs: bigint): Promise<void> {
    await this.#file.setTimes(Date.now() / 1_000, Number(modifiedNs / 1_000n) / 1_000_000);
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
