import { constants } from "node:fs";
import { constants as system } from "node:os";
import type { FileAttributes, FileType } from "../attributes.ts";
import { FileSystemError } from "../../domain/index.ts";
import type { Descriptor, OpenPath } from "./descriptor.ts";

/** O_NONBLOCK and O_NOCTTY protect against a FIFO or terminal that replaces the file between stat(2) and open(2). */
const FLAGS: number = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY;

const { EAGAIN } = system.errno;

/**
 * Opens a path only if it is a regular file. Opening something else could wake the writer of a FIFO, start a watchdog,
 * or block forever.
 */
export async function openRegular(
  path: Uint8Array,
  look: (path: Uint8Array) => Promise<FileAttributes>,
  open: OpenPath,
): Promise<RegularFile | { readonly notRegular: FileType }> {
  const seen = await look(path);
  if (seen.type !== "regular") return { notRegular: seen.type };
  await using opened = new AsyncDisposableStack();
  const file = opened.use(await open("open", path, FLAGS));
  const attributes = await file.attributes("open");
  if (attributes.type !== "regular") return { notRegular: attributes.type };
  opened.move();
  return new RegularFile(file, attributes);
}

export class RegularFile {
  /** Attributes at open time. */
  readonly attributes: FileAttributes;
  readonly #file: Descriptor;
  #mayBeCached = true;

  constructor(file: Descriptor, attributes: FileAttributes) {
    this.#file = file;
    this.attributes = attributes;
  }

  /**
   * Reads into the start of `target`, at `offsetBytes` or at the current position. Resolves with the number of bytes. 0
   * means the end of the file, or that a file such as /proc/kmsg has no data at present.
   */
  async read(target: Uint8Array, offsetBytes: bigint | undefined): Promise<number> {
    const cachedBytes = this.#readCached(target, offsetBytes);
    if (cachedBytes !== undefined) return cachedBytes;
    try {
      // Without an offset Node uses read(2): some files of /proc do not support pread(2).
      return await this.#file.read(target, offsetBytes);
    } catch (error) {
      if (error instanceof FileSystemError && error.errno === "EAGAIN") return 0;
      throw error;
    }
  }

  /**
   * Finds where the next data at or after an offset begins and ends. If no data follows, both results are the end of
   * the file. A hole smaller than 64 KiB between data counts as data.
   */
  async nextData(fromBytes: bigint): Promise<{ readonly beginBytes: bigint; readonly endBytes: bigint }> {
    const from = Buffer.alloc(8);
    from.writeBigInt64LE(fromBytes);
    const found = await this.#file.nativeBytes("read", (addon, fd) => addon.nextData(fd, from));
    return { beginBytes: found.readBigInt64LE(0), endBytes: found.readBigInt64LE(8) };
  }

  /**
   * Reads from the page cache on this thread, because handing the read to another thread takes as long as copying the
   * data. Returns undefined if the data is not cached.
   */
  #readCached(target: Uint8Array, offsetBytes: bigint | undefined): number | undefined {
    if (!this.#mayBeCached) return undefined;
    const position = offsetBytes === undefined ? -1 : Number(offsetBytes);
    if (!Number.isSafeInteger(position)) return undefined;
    const result = this.#file.readCached(target, position);
    if (result >= 0) return result;
    if (result !== -EAGAIN) this.#mayBeCached = false;
    return undefined;
  }

  /** Closes the file on a thread. Never rejects. */
  async close(): Promise<void> {
    await this.#file[Symbol.asyncDispose]();
  }
}
