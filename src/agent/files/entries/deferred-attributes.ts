import { constants, write } from "node:fs";
import { promisify } from "node:util";
import { FileSystemError } from "../../domain/index.ts";
import { type Descriptor, openIn } from "../open/descriptor.ts";
import type { OpenDirectory } from "../open/directory.ts";
import { Records } from "./record.ts";

/**
 * Limit for records in memory. Further records are moved to an unnamed file, because a tree may have millions of
 * directories.
 */
const MEMORY_BYTES = 4 * 1024 * 1024;
/** Largest number of records that takeAll() yields at once. */
const PART_RECORDS = 1_024;
/** O_TMPFILE of open(2), for which Node has no constant. */
const O_TMPFILE = 0o20000000 | constants.O_DIRECTORY;
const CURRENT_DIRECTORY = Buffer.from(".");
const writePart = promisify(write);

/**
 * Attributes of directories, which are set after the whole tree is written. If they were set earlier, new entries would
 * change the modification time, and a read-only mode would lock out an agent that is not root.
 */
export class DeferredAttributes implements AsyncDisposable {
  readonly #directory: OpenDirectory;
  #records = new Records();
  #file: Descriptor | undefined;
  /** Sizes of the parts of the file in bytes, in order. Each call of spill() appends one part. */
  readonly #parts: number[] = [];

  /** @param directory records that exceed MEMORY_BYTES are written to a file on the file system of this directory */
  constructor(directory: OpenDirectory) {
    this.#directory = directory;
  }

  /** Keeps the attributes of a directory, new or existing, until `takeAll` is called. */
  add(records: Records, index: number): void {
    this.#records.addAttributesOf(records, index);
  }

  /**
   * Moves the deferred attributes to a temporary file if they exceed MEMORY_BYTES. Returns false if this fails; the
   * caller must then set the attributes now. Throws FileSystemError if the file system hangs.
   */
  async spill(): Promise<boolean> {
    if (this.#records.sizeBytes < MEMORY_BYTES) return true;
    const { work, descriptor } = this.#directory;
    try {
      const how = { step: "create", on: [descriptor] } as const;
      const flags = O_TMPFILE | constants.O_RDWR;
      this.#file ??= await openIn(work, how, descriptor.fd, CURRENT_DIRECTORY, flags, { mode: 0o600 });
      const file = this.#file;
      const bytes = this.#records.slice(0);
      const position = this.#parts.reduce((sum, partBytes) => sum + partBytes, 0);
      for (let at = 0; at < bytes.length;) {
        const from = at;
        const { bytesWritten } = await work.step({ step: "write", on: [file] }, () =>
          writePart(file.fd, bytes, from, bytes.length - from, position + from),
        );
        at += bytesWritten;
      }
      this.#parts.push(bytes.length);
      this.#records = new Records();
      return true;
    } catch (error) {
      if (error instanceof FileSystemError && error.errno !== "ETIMEDOUT") return false;
      throw error;
    }
  }

  /**
   * Removes all records and yields them in reverse order: subdirectories first, because the new mode of their parent
   * may deny access to them.
   */
  async *takeAll(): AsyncGenerator<Records, void, undefined> {
    let records: Records | undefined = this.#records;
    this.#records = new Records();
    while (records !== undefined) {
      for (let end = records.count; end > 0; end -= PART_RECORDS) {
        const part = new Records();
        for (let index = end - 1; index >= Math.max(0, end - PART_RECORDS); index--)
          part.addAttributesOf(records, index);
        yield part;
      }
      records = await this.#readPart();
    }
  }

  /** Removes the records of the last spill() from the file and returns them; undefined if none are left. */
  async #readPart(): Promise<Records | undefined> {
    const sizeBytes = this.#parts.pop();
    if (sizeBytes === undefined || this.#file === undefined) return undefined;
    const start = this.#parts.reduce((sum, partBytes) => sum + partBytes, 0);
    const bytes = Buffer.allocUnsafe(sizeBytes);
    for (let at = 0; at < sizeBytes;) {
      const count = await this.#file.read(bytes.subarray(at), BigInt(start + at));
      if (count === 0) throw new FileSystemError("read", "EIO");
      at += count;
    }
    return Records.from(bytes);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#file?.[Symbol.asyncDispose]();
    this.#file = undefined;
  }
}
