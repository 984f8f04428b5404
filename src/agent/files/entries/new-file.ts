import { FileSystemError, FileSystemHung } from "../../domain/index.ts";
import type { FilePath } from "../attributes.ts";
import { type Descriptor, openedBy } from "../open/descriptor.ts";
import type { OpenDirectory } from "../open/directory.ts";
import { mountOf } from "../threads/mounts.ts";
import { FileWriter, type NewFileOptions } from "./file-writer.ts";
import { type Leftovers, temporaryName } from "./leftovers.ts";
import { removeEntry } from "./make.ts";
import { ENTRY, type NewEntry, packEntry } from "./record.ts";

/** Flags of makeEntry. NO_OTHERS: the name must be free or a regular file. EXCLUSIVE: the name must be free. */
const NO_OTHERS = 1;
const EXCLUSIVE = 2;
/**
 * Flags of commitEntry. The first three are the steps that the call runs: set owner, mode and times; give the file its
 * name; sync.
 */
const APPLY = 1;
const NAME = 2;
const SYNC = 4;
const OVERWRITES = 8;
const HAS_TEMPORARY = 16;
const CURRENT_DIRECTORY = Buffer.from(".");
const NONE = Buffer.alloc(0);

export interface Commit {
  /** Whether to fail with EEXIST if the name is taken, instead of replacing the file. */
  readonly exclusive: boolean;
  /**
   * Whether to sync the file and its directory before `commit` resolves. False if the caller syncs the file system
   * later.
   */
  readonly syncs: boolean;
  /** If the signal is aborted before the file gets its name, the creation fails with the signal's reason. */
  readonly signal: AbortSignal;
}

/**
 * Creates a file of mode 0600 in a directory and takes ownership of `directory`. If possible, the file has no name
 * (O_TMPFILE of open(2)), so that a killed agent leaves nothing behind. Otherwise it has a temporary name.
 */
export async function createFile(
  directory: OpenDirectory,
  leftovers: Leftovers,
  options: NewFileOptions,
  content: Uint8Array = NONE,
): Promise<NewFile> {
  await using owned = new AsyncDisposableStack();
  owned.use(directory);
  let temporary: Buffer | undefined;
  const file = await makeFile(directory, CURRENT_DIRECTORY, content, NONE, 0).catch(async (error: unknown) => {
    if (!(error instanceof FileSystemError) || error instanceof FileSystemHung || error.step === "write") throw error;
    await leftovers.removeFrom(directory);
    temporary = temporaryName();
    return makeFile(directory, CURRENT_DIRECTORY, content, temporary, 0);
  });
  owned.move();
  return new NewFile(directory, file, new FileWriter(file.fd, options), temporary);
}

/**
 * Creates a file with its content in one step, and takes ownership of `directory`. Rejects with FileSystemError if
 * something other than a regular file has the name, or if the file system requires a temporary name.
 */
export async function createSmallFile(
  directory: OpenDirectory,
  name: FilePath,
  content: Uint8Array,
  exclusive: boolean,
): Promise<NewFile> {
  await using owned = new AsyncDisposableStack();
  owned.use(directory);
  const file = await makeFile(directory, name, content, NONE, exclusive ? NO_OTHERS | EXCLUSIVE : NO_OTHERS);
  owned.move();
  return new NewFile(directory, file, undefined, undefined);
}

function makeFile(
  directory: OpenDirectory,
  name: FilePath,
  content: Uint8Array,
  temporary: Uint8Array,
  flags: number,
): Promise<Descriptor> {
  const { work, descriptor } = directory;
  const late = (): void => {
    if (temporary.length > 0) void removeEntry(directory, temporary, false);
  };
  const record = packEntry({ path: name, type: ENTRY.file, content });
  const how = { step: "create", on: [descriptor], late } as const;
  return openedBy(work, how, (addon) => addon.makeEntry(descriptor.fd, record, temporary, flags));
}

/**
 * A new file before its commit: it has no name yet, or only a temporary one. Do not call a method before the previous
 * call has ended.
 */
export class NewFile {
  readonly #directory: OpenDirectory;
  readonly #file: Descriptor;
  /** Writer of the file's content; undefined if the content was already written when the file was created. */
  readonly #writer: FileWriter | undefined;
  /** The name of the file until it gets its final name; undefined if it has no name until then (O_TMPFILE). */
  #temporary: Buffer | undefined;

  constructor(
    directory: OpenDirectory,
    file: Descriptor,
    writer: FileWriter | undefined,
    temporary: Buffer | undefined,
  ) {
    this.#directory = directory;
    this.#file = file;
    this.#writer = writer;
    this.#temporary = temporary;
  }

  /** Device number such as "254:0" (see Mount.fileSystem); undefined without /proc. */
  get fileSystem(): string | undefined {
    return mountOf(this.#file.fd)?.fileSystem;
  }

  /** Appends the pieces in order. The caller may reuse the pieces and the array once the promise resolves. */
  async write(pieces: readonly Uint8Array[]): Promise<void> {
    await this.#directory.work.step({ step: "write", on: [this.#file] }, async () => this.#writer?.write(pieces));
  }

  /** Appends a hole. Only for sparse files. */
  async skip(bytes: number): Promise<void> {
    await this.#directory.work.step({ step: "write", on: [this.#file] }, async () => this.#writer?.skip(bytes));
  }

  /** Returns the SHA-256 of everything written, or undefined if it was not requested. May be called only once. */
  sha256(): Uint8Array | undefined {
    return this.#writer?.sha256();
  }

  /**
   * Checks the file's size, sets owner, mode and time, syncs, and renames the file atomically to its name in the
   * directory (`entry.path`). Missing attributes are copied from the file that it replaces.
   */
  async commit(entry: Omit<NewEntry, "type" | "content">, { exclusive, syncs, signal }: Commit): Promise<void> {
    const record = packEntry({ ...entry, type: ENTRY.file });
    const temporary = this.#temporary ?? (exclusive ? NONE : temporaryName());
    if (!syncs) return this.#run("place", record, temporary, APPLY | NAME, exclusive, signal);
    await this.#run("sync", record, temporary, APPLY | SYNC, exclusive, signal);
    signal.throwIfAborted();
    const sync = this.#directory.isReadable ? SYNC : 0;
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
    const [file, directory] = [this.#file, this.#directory.descriptor];
    const flags = stages | (exclusive ? 0 : OVERWRITES) | (this.#temporary === undefined ? 0 : HAS_TEMPORARY);
    const late = (result: number): void => {
      if (result !== 0 || (stages & NAME) === 0) return;
      this.#temporary = undefined;
      for (const each of [file, directory]) each.wasClosed();
    };
    const how = { step, on: [directory, file], late, signal };
    try {
      const { work } = this.#directory;
      late(await work.native(how, (addon) => addon.commitEntry(file.fd, directory.fd, record, temporary, flags)));
    } catch (error) {
      // If the step sync_folder fails, the file already has its name, so no temporary name is left to remove.
      if (error instanceof FileSystemError && error.step === "sync_folder" && !(error instanceof FileSystemHung))
        this.#temporary = undefined;
      throw error;
    }
  }

  /** Closes the file, and deletes it unless it was committed. Never rejects. */
  async dispose(): Promise<void> {
    if (this.#temporary !== undefined) await removeEntry(this.#directory, this.#temporary, false);
    this.#temporary = undefined;
    await this.#file[Symbol.asyncDispose]();
    await this.#directory[Symbol.asyncDispose]();
  }
}
