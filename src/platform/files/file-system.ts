import { lstat, readlink, rmdir, stat } from "node:fs/promises";
import type { FileAttributes, FileSystem } from "../../domain/index.ts";
import { fileAttributes } from "./attributes.ts";
import { ignoreFailure, step } from "./errors.ts";
import { makeDirectory } from "./folder.ts";
import { createNamed } from "./named-file.ts";
import { PlacedFile } from "./new-file.ts";
import { openRegular } from "./regular-file.ts";
import { createUnnamed, type Linker } from "./unnamed-file.ts";

/** The file system that this process sees. All of its work is done by libuv's threads. */
export function guestFileSystem(linker: Linker): FileSystem {
  return {
    stat: async (path, noFollow): Promise<FileAttributes> => {
      const bytes = Buffer.from(path);
      const looked = noFollow ? lstat(bytes, { bigint: true }) : stat(bytes, { bigint: true });
      return fileAttributes(await step("stat", looked));
    },
    readLink: async (path) => step("readlink", readlink(Buffer.from(path), { encoding: "buffer" })),
    openRegular: async (path) => openRegular(Buffer.from(path)),
    create: async (folder) => {
      const bytes = Buffer.from(folder);
      return new PlacedFile((await createUnnamed(bytes, linker)) ?? (await createNamed(bytes)));
    },
    makeDirectory: async (path, owner, mode) => makeDirectory(Buffer.from(path), owner, mode),
    removeDirectory: async (path) => ignoreFailure(rmdir(Buffer.from(path))),
  };
}
