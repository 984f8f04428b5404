import { constants } from "node:fs";
import { type FileAttributes, type FilePath, FileSystemError, type OpenEntry } from "../../domain/index.ts";
import type { Descriptor, OpenPath } from "./descriptor.ts";
import { O_PATH } from "./paths.ts";
import type { FileWork } from "./work.ts";

const UNCHANGED = -1;
const NS_PER_SECOND = 1_000_000_000n;
/** Bits that the kernel clears silently where the caller may not set them. */
const SPECIAL_BITS = 0o7000;

/** Opens an entry of any type for its attributes alone: that has no effect on devices and FIFOs. */
export async function openEntry(path: FilePath, noFollow: boolean, open: OpenPath, work: FileWork): Promise<OpenEntry> {
  return new NativeEntry(await open("open", path, O_PATH | (noFollow ? constants.O_NOFOLLOW : 0)), work);
}

class NativeEntry implements OpenEntry {
  readonly #descriptor: Descriptor;
  readonly #work: FileWork;

  constructor(descriptor: Descriptor, work: FileWork) {
    this.#descriptor = descriptor;
    this.#work = work;
  }

  attributes(): Promise<FileAttributes> {
    return this.#descriptor.attributes("stat");
  }

  async setOwner(uid = UNCHANGED, gid = UNCHANGED): Promise<void> {
    const { addon } = this.#work;
    const how = { step: "chown", on: [this.#descriptor] } as const;
    await this.#work.native(how, () => addon.changeOwner(this.#descriptor.fd, uid, gid));
  }

  async setMode(mode: number): Promise<void> {
    const { addon } = this.#work;
    const how = { step: "chmod", on: [this.#descriptor] } as const;
    await this.#work.native(how, () => addon.changeMode(this.#descriptor.fd, mode));
    if ((mode & SPECIAL_BITS) === 0 || (await this.attributes()).mode === mode) return;
    throw new FileSystemError("chmod", "EPERM");
  }

  async setModified(modifiedNs: bigint): Promise<void> {
    const { addon } = this.#work;
    const nanoseconds = ((modifiedNs % NS_PER_SECOND) + NS_PER_SECOND) % NS_PER_SECOND;
    const seconds = Buffer.alloc(8);
    seconds.writeBigInt64LE((modifiedNs - nanoseconds) / NS_PER_SECOND);
    const how = { step: "utime", on: [this.#descriptor] } as const;
    await this.#work.native(how, () => addon.changeModified(this.#descriptor.fd, seconds, Number(nanoseconds)));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#descriptor[Symbol.asyncDispose]();
  }
}
