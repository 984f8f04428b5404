import { constants } from "node:fs";
import { type FileHandle, open, stat } from "node:fs/promises";
import { type FileAttributes, FileSystemError, type FileType, type ReadableFile } from "../../domain/index.ts";
import { fileAttributes } from "./attributes.ts";
import type { FileThreads } from "./threads.ts";

/** O_NONBLOCK and O_NOCTTY for what takes the file's place between the look at it and the opening. */
const FLAGS = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY;

/**
 * Opens a regular file. Looks before it opens: opening alone lets a FIFO's writer go on, starts a watchdog, rewinds a
 * tape, and keeps a thread waiting for ever where nobody writes.
 */
export async function openRegular(
  path: Buffer,
  threads: FileThreads,
): Promise<ReadableFile | { readonly notRegular: FileType }> {
  const seen = fileAttributes(await threads.step("open", () => stat(path, { bigint: true })));
  if (seen.type !== "regular") return { notRegular: seen.type };
  const handle = await threads.step("open", () => open(path, FLAGS));
  try {
    const attributes = fileAttributes(await threads.step("open", () => handle.stat({ bigint: true })));
    if (attributes.type === "regular") return new RegularFile(handle, attributes, threads);
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
  readonly #threads: FileThreads;

  constructor(handle: FileHandle, attributes: FileAttributes, threads: FileThreads) {
    this.#threads = threads;
    this.#handle = handle;
    this.attributes = attributes;
  }

  async read(target: Uint8Array, offsetBytes: bigint | undefined): Promise<number> {
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

  async close(): Promise<void> {
    await this.#threads.attempt(() => this.#handle.close());
  }
}
