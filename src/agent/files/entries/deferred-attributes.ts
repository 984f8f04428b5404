import { constants, write } from "node:fs";
import { promisify } from "node:util";
import { FileSystemError } from "../../domain/index.ts";
import { type Descriptor, openIn } from "../open/descriptor.ts";
import type { OpenFolder } from "../open/folder.ts";
import { Records } from "./record.ts";

/** Records in memory. What is more goes to a file without a name: a tree may have millions of directories. */
const MEMORY_BYTES = 4 * 1024 * 1024;
/** Records that are set in one step. */
const PART_RECORDS = 1_024;
/** O_TMPFILE of open(2), for which Node has no constant. */
const O_TMPFILE = 0o20000000 | constants.O_DIRECTORY;
const HERE = Buffer.from(".");
const writePart = promisify(write);

/**
 * Attributes of directories that wait until the tree is written: what is made in a directory would change its time, and
 * its mode may close it to an agent that is not root.
 */
export class DeferredAttributes implements AsyncDisposable {
  readonly #folder: OpenFolder;
  #records = new Records();
  #file: Descriptor | undefined;
  /** Sizes of the parts that are in the file, one behind the other. */
  readonly #parts: number[] = [];

  /** `folder`: on its file system the file is made. */
  constructor(folder: OpenFolder) {
    this.#folder = folder;
  }

  /** Adds those of a directory that was made, or is there. */
  add(records: Records, index: number): void {
    this.#records.addAttributesOf(records, index);
  }

  /** Makes room in memory. False where it cannot: set all now. Throws FileSystemError if the file system hangs. */
  async makeRoom(): Promise<boolean> {
    if (this.#records.sizeBytes < MEMORY_BYTES) return true;
    const { work, descriptor } = this.#folder;
    try {
      const how = { step: "create", on: [descriptor] } as const;
      const flags = O_TMPFILE | constants.O_RDWR;
      this.#file ??= await openIn(work, how, descriptor.fd, HERE, flags, { mode: 0o600 });
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

  /** Takes all out, the last first: a directory's mode may close it, so that what is in it comes before it. */
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

  /** The last part in the file; undefined: there is none left. */
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
