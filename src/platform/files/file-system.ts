import type { BigIntStats } from "node:fs";
import { lstat, readlink, rmdir, stat } from "node:fs/promises";
import type { FileAttributes, FileSystem } from "../../domain/index.ts";
import { fileAttributes } from "./attributes.ts";
import { makeDirectory } from "./folder.ts";
import { createNamed } from "./named-file.ts";
import { PlacedFile, type WriterMaker } from "./new-file.ts";
import { type CachedReader, openRegular } from "./regular-file.ts";
import { FileThreads } from "./threads.ts";
import { createUnnamed, type Linker } from "./unnamed-file.ts";

/** What files need of the addon. */
type FileAddon = Linker & CachedReader & WriterMaker;

/** The file system that this process sees. Its work is done by libuv's threads, but for what lies in memory already. */
export function guestFileSystem(addon: FileAddon): FileSystem {
  const threads = new FileThreads();
  return {
    stat: async (path, noFollow): Promise<FileAttributes> => {
      const bytes = Buffer.from(path);
      const look = (): Promise<BigIntStats> =>
        noFollow ? lstat(bytes, { bigint: true }) : stat(bytes, { bigint: true });
      return fileAttributes(await threads.step("stat", look));
    },
    readLink: async (path) => threads.step("readlink", () => readlink(Buffer.from(path), { encoding: "buffer" })),
    openRegular: async (path) => openRegular(Buffer.from(path), addon, threads),
    create: async (folder) => {
      const bytes = Buffer.from(folder);
      const placement = (await createUnnamed(bytes, addon, threads)) ?? (await createNamed(bytes, threads));
      return new PlacedFile(placement, addon, threads);
    },
    makeDirectory: async (path, owner, mode) => makeDirectory(Buffer.from(path), owner, mode, threads),
    removeDirectory: async (path) => threads.attempt(() => rmdir(Buffer.from(path))),
  };
}
