import { type BigIntStats, constants, lstat, readlink, stat } from "node:fs";
import { promisify } from "node:util";
import {
  AgentError,
  type FileAttributes,
  type FilePath,
  type FileStep,
  type FileSystem,
  FileSystemError,
  type FolderView,
  PathEscapes,
} from "../../domain/index.ts";
import {
  type Addon,
  errnoName,
  RESOLVE_BENEATH,
  RESOLVE_NO_MAGICLINKS,
  RESOLVE_NO_SYMLINKS,
  WORKING_FOLDER,
} from "../../native/index.ts";
import { Descriptor, fileAttributes, type PathOpener, stepOf } from "./descriptor.ts";
import { Folder, type FolderAddon, O_PATH, splitPath } from "./folder.ts";
import { createFile, type WriterMaker } from "./new-file.ts";
import { type CachedReader, openRegular } from "./regular-file.ts";
import { Leftovers } from "./leftovers.ts";
import { FileThreads } from "./threads.ts";

/** The part of the addon that files use. */
type FileAddon = FolderAddon & CachedReader & WriterMaker & Pick<Addon, "targetOf">;

const HERE = Buffer.from(".");
const statPath: (path: Buffer, options: { bigint: true }) => Promise<BigIntStats> = promisify(stat);
const statLink: (path: Buffer, options: { bigint: true }) => Promise<BigIntStats> = promisify(lstat);
const readLink = promisify(readlink);

/** The file system that this process sees. Works on libuv's threads, except for reads of cached data. */
export function guestFileSystem(addon: FileAddon): FileSystem {
  const threads = new FileThreads();
  const leftovers = new Leftovers(threads);
  const opener: PathOpener = {
    open: async (step, path, flags) =>
      new Descriptor(await stepOf(threads, step, () => addon.openIn(WORKING_FOLDER, path, flags, 0, 0)), threads),
  };
  const attributesOf = async (step: FileStep, path: FilePath, noFollow: boolean): Promise<FileAttributes> => {
    const bytes = Buffer.from(path);
    const look = (): Promise<BigIntStats> => (noFollow ? statLink : statPath)(bytes, { bigint: true });
    return fileAttributes(await threads.step(step, look));
  };
  return {
    stat: async (path, noFollow) => attributesOf("stat", path, noFollow),
    readLink: async (path) => threads.step("readlink", () => readLink(Buffer.from(path), { encoding: "buffer" })),
    openRegular: async (path) => openRegular(path, (seen) => attributesOf("open", seen, false), opener, addon),
    ...changes(opener, addon, threads, leftovers),
    beneath: async (root, noSymlinks) => {
      const folder = await opener.open("open_beneath", root, O_PATH | constants.O_DIRECTORY);
      try {
        const restricted = new RestrictedOpener(folder, noSymlinks, addon, threads);
        await restricted.check();
        return folderView(folder, restricted, addon, threads, leftovers);
      } catch (error) {
        await folder.close();
        throw error;
      }
    },
  };
}

/** The operations that change the tree, over either opener. Each works through the descriptor of the name's folder. */
function changes(
  opener: PathOpener,
  addon: FileAddon,
  threads: FileThreads,
  leftovers: Leftovers,
): Pick<FolderView, "create" | "makeDirectory" | "removeDirectory"> {
  const open = (step: FileStep, path: Uint8Array): Promise<Folder> => Folder.open(step, path, opener, addon, threads);
  return {
    create: async (folder, options) => createFile(await open("create", folder), addon, threads, leftovers, options),
    makeDirectory: async (path, owner, mode) => {
      const { folder, name } = splitPath(path);
      await using above = await open("mkdir", folder);
      await above.makeDirectory(name, owner, mode);
    },
    removeDirectory: async (path) => {
      const { folder, name } = splitPath(path);
      const above = await open("mkdir", folder).catch(() => undefined);
      await above?.remove(name, true);
      await above?.[Symbol.asyncDispose]();
    },
  };
}

function folderView(
  root: Descriptor,
  opener: PathOpener,
  addon: FileAddon,
  threads: FileThreads,
  leftovers: Leftovers,
): FolderView {
  const opened = async <Value>(
    step: FileStep,
    path: FilePath,
    flags: number,
    use: (file: Descriptor) => Value | Promise<Value>,
  ): Promise<Value> => {
    const file = await opener.open(step, path, O_PATH | flags);
    try {
      return await use(file);
    } finally {
      await file.close();
    }
  };
  const attributesOf = (step: FileStep, path: FilePath, noFollow: boolean): Promise<FileAttributes> =>
    opened(step, path, noFollow ? constants.O_NOFOLLOW : 0, (file) => file.attributes(step));
  return {
    stat: (path, noFollow) => attributesOf("stat", path, noFollow),
    readLink: (path) =>
      opened("readlink", path, constants.O_NOFOLLOW, (file) => {
        const target = addon.targetOf(file.fd);
        if (typeof target === "number") throw new FileSystemError("readlink", errnoName(target));
        return target;
      }),
    openRegular: async (path) => openRegular(path, (seen) => attributesOf("open", seen, false), opener, addon),
    ...changes(opener, addon, threads, leftovers),
    [Symbol.asyncDispose]: () => root.close(),
  };
}

/**
 * Opens paths beneath a folder. The kernel enforces it (openat2(2)), so changing the folder meanwhile cannot defeat it.
 */
class RestrictedOpener implements PathOpener {
  readonly #root: Descriptor;
  readonly #noSymlinks: boolean;
  readonly #addon: FileAddon;
  readonly #threads: FileThreads;

  constructor(root: Descriptor, noSymlinks: boolean, addon: FileAddon, threads: FileThreads) {
    this.#root = root;
    this.#noSymlinks = noSymlinks;
    this.#addon = addon;
    this.#threads = threads;
  }

  async open(step: FileStep, path: Uint8Array, flags: number): Promise<Descriptor> {
    const resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (this.#noSymlinks ? RESOLVE_NO_SYMLINKS : 0);
    try {
      const { fd } = this.#root;
      const opening = stepOf(this.#threads, step, () => this.#addon.openIn(fd, path, flags, 0, resolve));
      return new Descriptor(await opening, this.#threads);
    } catch (error) {
      if (!(error instanceof FileSystemError)) throw error;
      // Without noSymlinks ELOOP has its usual meaning: a loop of links.
      const escapes = error.errno === "EXDEV" || (error.errno === "ELOOP" && this.#noSymlinks);
      throw escapes ? new PathEscapes(step, error.errno) : error;
    }
  }

  /** Throws AgentError where the kernel (before Linux 5.6) or a filter has no openat2. */
  async check(): Promise<void> {
    try {
      await (await this.open("open_beneath", HERE, O_PATH)).close();
    } catch (error) {
      if (!(error instanceof FileSystemError) || !["ENOSYS", "EPERM"].includes(error.errno)) throw error;
      const message =
        "beneath needs openat2(2), which this guest's kernel does not have (Linux 5.6) or does not permit";
      throw new AgentError("UNIMPLEMENTED", "UNIMPLEMENTED", message, { field: "beneath", errno: error.errno });
    }
  }
}
