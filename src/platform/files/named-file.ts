import { constants } from "node:fs";
import { type FileHandle, link, open, rename, unlink } from "node:fs/promises";
import type { FileThreads } from "./threads.ts";

const SLASH = Buffer.from("/");
const FLAGS = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW | constants.O_NOCTTY;
/** Mode of a file while it is being written. */
export const PRIVATE_MODE = 0o600;

/** A name in the folder that nobody else has: `.svc-guest-<24 hex digits>.tmp`. */
export function temporaryPath(folder: Buffer): Buffer {
  const { randomBytes } = process.getBuiltinModule("node:crypto");
  return Buffer.concat([folder, SLASH, Buffer.from(`.svc-guest-${randomBytes(12).toString("hex")}.tmp`)]);
}

/** Content on its way to a path: how it is held, and how it gets there. */
export interface Placement {
  readonly handle: FileHandle;
  /**
   * Gives the content its path in one step; with `exclusive` only where there is nothing.
   *
   * @param shortFolder a second path of the folder, for when a temporary name in it would be too long
   */
  place(path: Buffer, exclusive: boolean, shortFolder: Buffer): Promise<void>;
  /** Removes what was not placed. Never rejects. */
  remove(): Promise<void>;
}

/** Holds the content in a file with a temporary name, for file systems that have no files without one. */
export async function createNamed(folder: Buffer, threads: FileThreads): Promise<Placement> {
  const temporary = temporaryPath(folder);
  const handle = await threads.step("create", () => open(temporary, FLAGS, PRIVATE_MODE));
  let exists = true;
  const remove = async (): Promise<void> => {
    if (exists) await threads.attempt(() => unlink(temporary));
    exists = false;
  };
  return {
    handle,
    place: async (path, exclusive) => {
      if (exclusive) {
        await threads.step("place", () => link(temporary, path));
        await remove();
      } else {
        await threads.step("place", () => rename(temporary, path));
        exists = false;
      }
    },
    remove,
  };
}
