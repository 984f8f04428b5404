import { type FileOwner, FileSystemError, type NewFile } from "../../domain/index.ts";
import { ignoreFailure, step } from "./errors.ts";
import { folderOf, openFolderSync } from "./folder.ts";
import type { Placement } from "./named-file.ts";

/** Bits that the kernel clears silently where the caller may not set them. */
const SPECIAL_BITS = 0o7000;

/** A file that is written, finished and placed, whatever holds it until then. */
export class PlacedFile implements NewFile {
  readonly #placement: Placement;

  constructor(placement: Placement) {
    this.#placement = placement;
  }

  async write(bytes: Uint8Array): Promise<void> {
    const { handle } = this.#placement;
    // Short writes happen before ENOSPC.
    for (let at = 0; at < bytes.length;) {
      const { bytesWritten } = await step("write", handle.write(bytes, at, bytes.length - at));
      at += bytesWritten;
    }
  }

  async setAttributes(owner: FileOwner, mode: number): Promise<void> {
    const { handle } = this.#placement;
    await step("chown", handle.chown(owner.uid, owner.gid));
    await step("chmod", handle.chmod(mode));
    if ((mode & SPECIAL_BITS) === 0) return;
    const stats = await step("chmod", handle.stat());
    if ((stats.mode & 0o7777) !== mode) throw new FileSystemError("chmod", "EPERM");
  }

  async sync(): Promise<void> {
    await step("sync", this.#placement.handle.sync());
  }

  async place(path: Uint8Array, exclusive: boolean): Promise<void> {
    const target = Buffer.from(path);
    await using folder = await openFolderSync(folderOf(target));
    await this.#placement.place(target, exclusive, folder.shortPath);
    await folder.sync();
  }

  async dispose(): Promise<void> {
    await this.#placement.remove();
    await ignoreFailure(this.#placement.handle.close());
  }
}
