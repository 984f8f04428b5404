import { type BigIntStats, constants, lstat, readlink, stat } from "node:fs";
import { promisify } from "node:util";
import type { FileAttributes, FilePath } from "../attributes.ts";
import { type FileStep, FileSystemError, type Timers } from "../../domain/index.ts";
import { type FileSystem, type FileTree, PathEscapes } from "../types.ts";
import { splitPath } from "../new-folders.ts";
import { type Addon, RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS } from "../../native/index.ts";
import { type Descriptor, fileAttributes, type OpenPath } from "./descriptor.ts";
import { Folder } from "./folder.ts";
import { createFile, Leftovers } from "../transfer/new-file.ts";
import { O_PATH, Paths } from "./paths.ts";
import { checkOpenat2 } from "./openat2.ts";
import { openRegular } from "../transfer/regular-file.ts";
import { FileWork } from "../threads/work.ts";

const HERE = Buffer.from(".");
const statPath: (path: Buffer, options: { bigint: true }) => Promise<BigIntStats> = promisify(stat);
const statLink: (path: Buffer, options: { bigint: true }) => Promise<BigIntStats> = promisify(lstat);
const targetOfLink = promisify(readlink);

/** Path lookups in a tree. All throw FileSystemError. */
interface Ways {
  readonly open: OpenPath;
  readonly look: (step: FileStep, path: FilePath, noFollow: boolean) => Promise<FileAttributes>;
  readonly readLink: FileTree["readLink"];
}

/** The file system that this process sees. Works on libuv's threads, except for reads of cached data. */
export function guestFileSystem(addon: Addon, timers: Timers): FileSystem {
  const work = new FileWork(addon, timers);
  const leftovers = new Leftovers();
  const paths = new Paths(work);
  const open: OpenPath = (step, path, flags) => paths.open(step, path, flags);
  const tree = treeOf(work, leftovers, {
    open,
    look: async (step, path, noFollow) => {
      const bytes = Buffer.from(path);
      const stats = await paths.follow(step, bytes, () => (noFollow ? statLink : statPath)(bytes, { bigint: true }));
      return fileAttributes(stats);
    },
    readLink: (path) => paths.follow("readlink", path, () => targetOfLink(Buffer.from(path), { encoding: "buffer" })),
  });
  return {
    ...tree,
    beneath: async (root, noSymlinks) => {
      await using opened = new AsyncDisposableStack();
      const folder = opened.use(await open("open_beneath", root, O_PATH | constants.O_DIRECTORY));
      const ways = waysBeneath(folder, noSymlinks, work);
      await checkOpenat2(() => ways.open("open_beneath", HERE, O_PATH), "beneath");
      opened.move();
      return { ...treeOf(work, leftovers, ways), [Symbol.asyncDispose]: () => folder[Symbol.asyncDispose]() };
    },
  };
}

/** A tree over path lookups. Changes go through the descriptor of the name's folder. */
function treeOf(work: FileWork, leftovers: Leftovers, { open, look, readLink }: Ways): FileTree {
  const folderAt = (step: FileStep, path: Uint8Array): Promise<Folder> => Folder.open(step, path, open, work);
  return {
    stat: (path, noFollow) => look("stat", path, noFollow),
    readLink,
    openRegular: (path) => openRegular(path, (seen) => look("open", seen, false), open),
    create: async (folder, options) => createFile(await folderAt("create", folder), work, leftovers, options),
    makeDirectory: async (path, owner, mode) => {
      const { folder, name } = splitPath(path);
      await using above = await folderAt("mkdir", folder);
      await above.makeDirectory(name, owner, mode);
    },
    // Loaded at the first call that needs them.
    openFolder: async (path, reads) => {
      const folders = await import("../tree/open-folder.ts");
      return folders.openFolder(path, reads, open, work);
    },
    openEntry: async (path, noFollow) => {
      const { openEntry } = await import("../tree/open-entry.ts");
      return openEntry(path, noFollow, open);
    },
    removeDirectory: async (path) => {
      const { folder, name } = splitPath(path);
      await using above = await folderAt("mkdir", folder).catch(() => undefined);
      await above?.remove(name, true);
    },
  };
}

/** Path lookups beneath a folder. The kernel enforces that (openat2(2)), even if the folder changes meanwhile. */
function waysBeneath(folder: Descriptor, noSymlinks: boolean, work: FileWork): Ways {
  const resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (noSymlinks ? RESOLVE_NO_SYMLINKS : 0);
  const paths = new Paths(work, folder);
  const open: OpenPath = async (step, path, flags) => {
    try {
      return await paths.open(step, path, flags, resolve);
    } catch (error) {
      if (!(error instanceof FileSystemError)) throw error;
      // openat2(2): EXDEV also for an absolute link that would stay inside; ELOOP for a loop, a magic link, and for any
      // link with noSymlinks.
      const escapes = error.errno === "EXDEV" || error.errno === "ELOOP";
      throw escapes ? new PathEscapes(step, error.errno, noSymlinks) : error;
    }
  };
  return {
    open,
    look: async (step, path, noFollow) => {
      await using file = await open(step, path, O_PATH | (noFollow ? constants.O_NOFOLLOW : 0));
      return await file.attributes(step);
    },
    readLink: async (path) => {
      await using file = await open("readlink", path, O_PATH | constants.O_NOFOLLOW);
      return await file.nativeBytes("readlink", (addon, fd) => addon.targetOf(fd));
    },
  };
}
