import { constants } from "node:fs";
import { type FileHandle, open, stat } from "node:fs/promises";
import { constants as system } from "node:os";
import { type FileAttributes, FileSystemError, type FileType, type ReadableFile } from "../../domain/index.ts";
import type { Addon } from "../../native/index.ts";
import { fileAttributes } from "./attributes.ts";
import type { FileThreads } from "./threads.ts";

/** O_NONBLOCK and O_NOCTTY for what takes the file's place between the look at it and the opening. */
const FLAGS: number = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY;

const { EAGAIN } = system.errno;

/** What reading needs of the addon. */
export type CachedReader = Pick<Addon, "readCached">;

/**
 * Opens a regular file. Looks before it opens: opening alone lets a FIFO's writer go on, starts a watchdog, rewinds a
 * tape, and keeps a thread waiting for ever where nobody writes.
 */
export async function openRegular(
  path: Buffer,
  reader: CachedReader,
  threads: FileThreads,
): Promise<ReadableFile | { readonly notRegular: FileType }> {
  const seen = fileAttributes(await threads.step("open", () => stat(path, { bigint: true })));
  if (seen.type !== "regular") return { notRegular: seen.type };
  const handle = await threads.step("open", () => open(path, FLAGS));
  try {
    const attributes = fileAttributes(await threads.step("open", () => handle.stat({ bigint: true })));
    if (attributes.type === "regular") return new RegularFile(handle, attributes, reader, threads);
    await threads.attempt(() => handle.close());
    return { notRegular: attributes.type };
  } catch (error) {
    await threads.attempt(() => handle.close());
    throw error;
  }
}

class RegularFile implements ReadableFile {
  readonly attributes: FileAttributes;
  readonly #handle: FileHandle;
  readonly #reader: CachedReader;
  readonly #threads: FileThreads;
  #mayBeCached = true;

  constructor(handle: FileHandle, attributes: FileAttributes, reader: CachedReader, threads: FileThreads) {
    this.#reader = reader;
    this.#threads = threads;
    this.#handle = handle;
    this.attributes = attributes;
  }

  async read(target: Uint8Array, offsetBytes: bigint | undefined): Promise<number> {
    const cachedBytes = this.#readCached(target, offsetBytes);
    if (cachedBytes !== undefined) return cachedBytes;
    try {
      // Without an offset by read(2): some files of /proc cannot be read at an offset.
      const { bytesRead } = await this.#threads.step("read", () =>
        this.#handle.read(target, 0, target.length, offsetBytes ?? null),
      );
      return bytesRead;
    } catch (error) {
      if (error instanceof FileSystemError && error.errno === "EAGAIN") return 0;
      throw error;
    }
  }

  /** What lies in memory needs no thread, which costs as much as the copy. Undefined: to be read by one. */
  #readCached(target: Uint8Array, offsetBytes: bigint | undefined): number | undefined {
    if (!this.#mayBeCached) return undefined;
    const position = offsetBytes === undefined ? -1 : Number(offsetBytes);
    if (!Number.isSafeInteger(position)) return undefined;
    const result = this.#reader.readCached(this.#handle.fd, target, position);
    if (result >= 0) return result;
    if (result !== -EAGAIN) this.#mayBeCached = false;
    return undefined;
  }

  async close(): Promise<void> {
    await this.#threads.attempt(() => this.#handle.close());
  }
}
