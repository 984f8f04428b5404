import { type FileOwner, FileSystemError, type NewFile } from "../../domain/index.ts";
import { type Addon, errnoName, type SummingWriter } from "../../native/index.ts";
import type { FileThreads } from "./threads.ts";
import { folderOf, openFolderSync } from "./folder.ts";
import type { Placement } from "./named-file.ts";

/** Bits that the kernel clears silently where the caller may not set them. */
const SPECIAL_BITS = 0o7000;

/** More is not summed up on the event loop's thread: it would hold up the other calls. */
const SUM_HERE_BYTES = 256 * 1024;

/** What writing needs of the addon. */
export type WriterMaker = Pick<Addon, "SummingWriter">;

/** A file that is written, finished and placed, whatever holds it until then. */
export class PlacedFile implements NewFile {
  readonly #placement: Placement;
  readonly #threads: FileThreads;
  readonly #writer: SummingWriter;

  constructor(placement: Placement, { SummingWriter }: WriterMaker, threads: FileThreads) {
    this.#threads = threads;
    this.#placement = placement;
    this.#writer = new SummingWriter(placement.handle.fd);
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
    const { handle } = this.#placement;
    await this.#threads.step("chown", () => handle.chown(owner.uid, owner.gid));
    await this.#threads.step("chmod", () => handle.chmod(mode));
    if ((mode & SPECIAL_BITS) === 0) return;
    const stats = await this.#threads.step("chmod", () => handle.stat());
    if ((stats.mode & 0o7777) !== mode) throw new FileSystemError("chmod", "EPERM");
  }

  async sync(): Promise<void> {
    await this.#threads.step("sync", () => this.#placement.handle.sync());
  }

  async place(path: Uint8Array, exclusive: boolean): Promise<void> {
    const target = Buffer.from(path);
    await using folder = await openFolderSync(folderOf(target), this.#threads);
    await this.#placement.place(target, exclusive, folder.shortPath);
    await folder.sync();
  }

  async dispose(): Promise<void> {
    await this.#placement.remove();
    await this.#threads.attempt(() => this.#placement.handle.close());
  }
}
