import { constants } from "node:fs";
import type { FileAttributes, FileOwner } from "../attributes.ts";
import { FileSystemError, type FileStep } from "../../domain/index.ts";
import { errnoName } from "../../native/index.ts";
import { type Descriptor, openedBy, openIn, type OpenPath } from "./descriptor.ts";
import { O_PATH } from "./paths.ts";
import type { FileWork } from "../threads/work.ts";

/** The errno of a folder that may be entered but not listed: it cannot be opened for reading or synced. */
const UNREADABLE = "EACCES";
/** Errnos of fsync(2) on file systems that do not sync folders. */
const NOT_SYNCABLE: ReadonlySet<string> = new Set(["EINVAL", "ENOTSUP", "ENOSYS"]);

/** An open folder. All goes through its descriptor: no rename or link redirects it, and its path may be long. */
export class Folder implements AsyncDisposable {
  readonly #descriptor: Descriptor;
  /** It can be synced. */
  readonly canSync: boolean;
  readonly #work: FileWork;

  /** Opens a folder by its path. `step` is the operation to name in an error. */
  static async open(step: FileStep, path: Uint8Array, open: OpenPath, work: FileWork): Promise<Folder> {
    try {
      return new Folder(await open(step, path, constants.O_RDONLY | constants.O_DIRECTORY), true, work);
    } catch (error) {
      if (!(error instanceof FileSystemError) || error.errno !== UNREADABLE) throw error;
      return new Folder(await open(step, path, O_PATH | constants.O_DIRECTORY), false, work);
    }
  }

  private constructor(descriptor: Descriptor, canSync: boolean, work: FileWork) {
    this.#descriptor = descriptor;
    this.canSync = canSync;
    this.#work = work;
  }

  /** Runs a step that works on the folder. Throws FileSystemError. */
  run<Value>(step: FileStep, operation: () => Promise<Value>): Promise<Value> {
    return this.#work.step({ step, on: [this.#descriptor] }, operation);
  }

  attributes(): Promise<FileAttributes> {
    return this.#descriptor.attributes("create");
  }

  /** A path that leads to this folder while it is open. Leads nowhere without /proc. */
  get link(): string {
    return `/proc/self/fd/${this.#descriptor.fd}`;
  }

  /** Opens or creates an entry. Never follows a link. */
  open(step: FileStep, name: Uint8Array, flags: number, mode = 0): Promise<Descriptor> {
    const late = (): void => {
      if ((flags & constants.O_CREAT) !== 0) void this.remove(name, false);
    };
    const how = { step, on: [this.#descriptor], late };
    return openIn(this.#work, how, this.#descriptor.fd, name, flags | constants.O_NOFOLLOW, { mode });
  }

  /** Makes a small file without a name, from a packed entry (tree/batch.ts). Throws FileSystemError: nothing is made. */
  makeSmall(entry: Uint8Array, exclusive: boolean): Promise<Descriptor> {
    const how = { step: "create", on: [this.#descriptor] } as const;
    return openedBy(this.#work, how, (addon) => addon.makeSmallFile(this.#descriptor.fd, entry, exclusive));
  }

  /** Gives an open file a name. Replaces an existing entry through the temporary name; EEXIST if that is empty. */
  async place(file: Descriptor, name: Uint8Array, temporary: Uint8Array): Promise<void> {
    await this.#descriptor.native("place", (addon, fd) => addon.placeIn(file.fd, fd, name, temporary), [file]);
  }

  /** The same, syncs the folder and closes both, on one thread: what has its place is used no more. */
  async settle(file: Descriptor, name: Uint8Array, temporary: Uint8Array): Promise<void> {
    const folder = this.#descriptor;
    const late = (result: number): void => {
      for (const each of result === 0 ? [file, folder] : []) each.wasClosed();
    };
    const how = { step: "sync_folder", on: [folder, file], late } as const;
    const result = await this.#work.step(how, () => this.#work.addon.settleIn(file.fd, folder.fd, name, temporary));
    late(result);
    if (result !== 0 && !NOT_SYNCABLE.has(errnoName(-Math.abs(result))))
      throw new FileSystemError(result < 0 ? "place" : "sync_folder", errnoName(-Math.abs(result)));
  }

  async move(from: Uint8Array, to: Uint8Array, exclusive: boolean): Promise<void> {
    await this.#descriptor.native("place", (addon, fd) => addon.moveIn(fd, from, fd, to, exclusive));
  }

  /** Removes an entry if possible. Never rejects. */
  async remove(name: Uint8Array, isFolder: boolean): Promise<void> {
    const { addon } = this.#work;
    await this.#work.attempt(this.#descriptor, () => addon.removeIn(this.#descriptor.fd, name, isFolder));
  }

  /** Creates a directory with exactly these attributes and syncs it, or creates none. */
  async makeDirectory(name: Uint8Array, owner: FileOwner, mode: number): Promise<void> {
    const late = (result: number): void => {
      if (result === 0) void this.remove(name, true);
    };
    const how = { step: "mkdir", on: [this.#descriptor], late } as const;
    const { fd } = this.#descriptor;
    const result = await this.#work.native(how, (addon) => addon.makeFolderIn(fd, name, owner.uid, owner.gid, mode));
    if (result !== 0) throw new FileSystemError("chown", errnoName(-result));
    try {
      await this.sync();
    } catch (error) {
      await this.remove(name, true);
      throw error;
    }
  }

  async sync(): Promise<void> {
    try {
      if (this.canSync) await this.#descriptor.sync("sync_folder");
    } catch (error) {
      if (!(error instanceof FileSystemError) || !NOT_SYNCABLE.has(error.errno)) throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#descriptor[Symbol.asyncDispose]();
  }
}
