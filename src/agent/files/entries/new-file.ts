import { FileSystemError, FileSystemHung } from "../../domain/index.ts";
import type { FilePath } from "../attributes.ts";
import { type Descriptor, openedBy } from "../open/descriptor.ts";
import type { OpenFolder } from "../open/folder.ts";
import { mountOf } from "../threads/mounts.ts";
import { FileWriter, type NewFileOptions } from "./file-writer.ts";
import { type Leftovers, temporaryName } from "./leftovers.ts";
import { removeEntry } from "./make.ts";
import { ENTRY, type NewEntry, packEntry } from "./record.ts";

/** Flags of makeEntry: the name is that of a regular file or free, or it must be free. */
const NO_OTHERS = 1;
const EXCLUSIVE = 2;
/** Stages and flags of commitEntry. */
const SETTLE = 1;
const NAME = 2;
const SYNC = 4;
const OVERWRITES = 8;
const HAS_TEMPORARY = 16;
const HERE = Buffer.from(".");
const NONE = Buffer.alloc(0);

/** How a file gets its name. */
export interface Commit {
  /** EEXIST where anything has the name, instead of replacing it. */
  readonly exclusive: boolean;
  /** The file and its name are on the disk when it resolves. Else a tree is synced as a whole. */
  readonly syncs: boolean;
  /** Its reason is thrown if it is aborted before the name is given. */
  readonly signal: AbortSignal;
}

/**
 * Creates a file of mode 0600 in a directory, and owns the directory from then on. Where the file system can, the file
 * has no name (O_TMPFILE of open(2)), so that nothing is left of it if the agent is killed. Elsewhere it has a
 * temporary name, and leftovers of killed agents are removed from the directory first.
 */
export async function createFile(
  folder: OpenFolder,
  leftovers: Leftovers,
  options: NewFileOptions,
  content: Uint8Array = NONE,
): Promise<NewFile> {
  await using owned = new AsyncDisposableStack();
  owned.use(folder);
  let temporary: Buffer | undefined;
  const file = await makeFile(folder, HERE, content, NONE, 0).catch(async (error: unknown) => {
    if (!(error instanceof FileSystemError) || error instanceof FileSystemHung || error.step === "write") throw error;
    await leftovers.removeFrom(folder);
    temporary = temporaryName();
    return makeFile(folder, HERE, content, temporary, 0);
  });
  owned.move();
  return new NewFile(folder, file, new FileWriter(file.fd, options), temporary);
}

/**
 * Creates a file with its content for a name that is free or a regular file's, and owns the directory from then on.
 * Rejects with FileSystemError where anything else has the name, and where the file would need a temporary one.
 */
export async function createSmallFile(
  folder: OpenFolder,
  name: FilePath,
  content: Uint8Array,
  exclusive: boolean,
): Promise<NewFile> {
  await using owned = new AsyncDisposableStack();
  owned.use(folder);
  const file = await makeFile(folder, name, content, NONE, exclusive ? NO_OTHERS | EXCLUSIVE : NO_OTHERS);
  owned.move();
  return new NewFile(folder, file, undefined, undefined);
}

function makeFile(
  folder: OpenFolder,
  name: FilePath,
  content: Uint8Array,
  temporary: Uint8Array,
  flags: number,
): Promise<Descriptor> {
  const { work, descriptor } = folder;
  const late = (): void => {
    if (temporary.length > 0) void removeEntry(folder, temporary, false);
  };
  const record = packEntry({ path: name, type: ENTRY.file, content });
  const how = { step: "create", on: [descriptor], late } as const;
  return openedBy(work, how, (addon) => addon.makeEntry(descriptor.fd, record, temporary, flags));
}

/** A new file before it has its name: nobody sees it there before. Call the methods one after the other. */
export class NewFile {
  readonly #folder: OpenFolder;
  readonly #file: Descriptor;
  /** Undefined: its content is in it. */
  readonly #writer: FileWriter | undefined;
  /** Its temporary name, while it has one. */
  #temporary: Buffer | undefined;

  constructor(folder: OpenFolder, file: Descriptor, writer: FileWriter | undefined, temporary: Buffer | undefined) {
    this.#folder = folder;
    this.#file = file;
    this.#writer = writer;
    this.#temporary = temporary;
  }

  /** Its file system; undefined without /proc. */
  get fileSystem(): string | undefined {
    return mountOf(this.#file.fd)?.fileSystem;
  }

  /** Appends the pieces, one after another. The caller may reuse them, and the array, once it resolves. */
  async write(pieces: readonly Uint8Array[]): Promise<void> {
    await this.#folder.work.step({ step: "write", on: [this.#file] }, async () => this.#writer?.write(pieces));
  }

  /** Appends a hole to a file that is made sparse. */
  async skip(bytes: number): Promise<void> {
    await this.#folder.work.step({ step: "write", on: [this.#file] }, async () => this.#writer?.skip(bytes));
  }

  /** SHA-256 of all that was written; undefined where the file was created without. Call it once. */
  sha256(): Uint8Array | undefined {
    return this.#writer?.sha256();
  }

  /**
   * Checks the file's size, sets owner, mode and time, syncs, and gives it its name atomically. `entry` has the name in
   * the directory. What is not given is that of the file that it replaces.
   */
  async commit(entry: Omit<NewEntry, "type" | "content">, { exclusive, syncs, signal }: Commit): Promise<void> {
    const record = packEntry({ ...entry, type: ENTRY.file });
    const temporary = this.#temporary ?? (exclusive ? NONE : temporaryName());
    if (!syncs) return this.#run("place", record, temporary, SETTLE | NAME, exclusive, signal);
    await this.#run("sync", record, temporary, SETTLE | SYNC, exclusive, signal);
    signal.throwIfAborted();
    const sync = this.#folder.isReadable ? SYNC : 0;
    return this.#run("sync_folder", record, temporary, NAME | sync, exclusive);
  }

  async #run(
    step: "place" | "sync" | "sync_folder",
    record: Buffer,
    temporary: Uint8Array,
    stages: number,
    exclusive: boolean,
    signal?: AbortSignal,
  ): Promise<void> {
    const [file, folder] = [this.#file, this.#folder.descriptor];
    const flags = stages | (exclusive ? 0 : OVERWRITES) | (this.#temporary === undefined ? 0 : HAS_TEMPORARY);
    const late = (result: number): void => {
      if (result !== 0 || (stages & NAME) === 0) return;
      this.#temporary = undefined;
      for (const each of [file, folder]) each.wasClosed();
    };
    const how = { step, on: [folder, file], late, signal };
    try {
      const { work } = this.#folder;
      late(await work.native(how, (addon) => addon.commitEntry(file.fd, folder.fd, record, temporary, flags)));
    } catch (error) {
      // It has its name already.
      if (error instanceof FileSystemError && error.step === "sync_folder" && !(error instanceof FileSystemHung))
        this.#temporary = undefined;
      throw error;
    }
  }

  /** Closes the file, and removes it unless it has its name. Never rejects. */
  async dispose(): Promise<void> {
    if (this.#temporary !== undefined) await removeEntry(this.#folder, this.#temporary, false);
    this.#temporary = undefined;
    await this.#file[Symbol.asyncDispose]();
    await this.#folder[Symbol.asyncDispose]();
  }
}
