import { type FileOwner, FileSystemError, type NewFile } from "../../domain/index.ts";
import type { FileThreads } from "./threads.ts";
import { folderOf, openFolderSync } from "./folder.ts";
import type { Placement } from "./named-file.ts";

/** Bits that the kernel clears silently where the caller may not set them. */
const SPECIAL_BITS = 0o7000;

/** A file that is written, finished and placed, whatever holds it until then. */
export class PlacedFile implements NewFile {
  readonly #placement: Placement;
  readonly #threads: FileThreads;

  constructor(placement: Placement, threads: FileThreads) {
    this.#threads = threads;
    this.#placement = placement;
  }

  async write(bytes: Uint8Array): Promise<void> {
    const { handle } = this.#placement;
    // Short writes happen before ENOSPC.
    for (let at = 0; at < bytes.length;) {
      const { bytesWritten } = await this.#threads.step("write", () => handle.write(bytes, at, bytes.length - at));
      at += bytesWritten;
    }
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
