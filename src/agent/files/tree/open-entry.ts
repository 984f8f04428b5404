import { constants } from "node:fs";
import type { FileAttributes, FilePath } from "../attributes.ts";
import type { Descriptor, OpenPath } from "../paths/descriptor.ts";
import { O_PATH } from "../paths/paths.ts";

const UNCHANGED = -1;
const NS_PER_SECOND = 1_000_000_000n;

/** Opens an entry of any type for its attributes alone: that has no effect on devices and FIFOs. */
export async function openEntry(path: FilePath, noFollow: boolean, open: OpenPath): Promise<OpenEntry> {
  return new OpenEntry(await open("open", path, O_PATH | (noFollow ? constants.O_NOFOLLOW : 0)));
}

/** An open entry of any type, of which only attributes are read and set. */
export class OpenEntry implements AsyncDisposable {
  readonly #descriptor: Descriptor;

  constructor(descriptor: Descriptor) {
    this.#descriptor = descriptor;
  }

  attributes(): Promise<FileAttributes> {
    return this.#descriptor.attributes("stat");
  }

  async setOwner(uid: number = UNCHANGED, gid: number = UNCHANGED): Promise<void> {
    await this.#descriptor.native("chown", (addon, fd) => addon.changeOwner(fd, uid, gid));
  }

  async setMode(mode: number): Promise<void> {
    await this.#descriptor.native("chmod", (addon, fd) => addon.changeMode(fd, mode));
    await this.#descriptor.checkMode(mode);
  }

  /** In nanoseconds since 1970. */
  async setModified(modifiedNs: bigint): Promise<void> {
    const nanoseconds = ((modifiedNs % NS_PER_SECOND) + NS_PER_SECOND) % NS_PER_SECOND;
    const seconds = Buffer.alloc(8);
    seconds.writeBigInt64LE((modifiedNs - nanoseconds) / NS_PER_SECOND);
    await this.#descriptor.native("utime", (addon, fd) => addon.changeModified(fd, seconds, Number(nanoseconds)));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#descriptor[Symbol.asyncDispose]();
  }
}
