import { type FileOwner, type FilePath, FileSystemError, type FileTree } from "../domain/index.ts";
import { groupOfEntries, SETGID } from "./owner.ts";
import { folderOf } from "./paths.ts";

const MODE = 0o755;

/** Folders that were made for a file, to be removed again if the file does not get there. */
export class Parents {
  readonly #fileSystem: FileTree;
  readonly #made: FilePath[] = [];

  constructor(fileSystem: FileTree) {
    this.#fileSystem = fileSystem;
  }

  /**
   * Makes a folder and missing ones above it. With `inherit`, below a setgid folder, they get its group and setgid too.
   */
  async make(folder: FilePath, owner: FileOwner, inherit: boolean): Promise<void> {
    const missing: FilePath[] = [];
    for (let path = folder; !(await this.#exists(path)); path = folderOf(path)) missing.push(path);
    for (const path of missing.toReversed()) {
      try {
        const gid = inherit ? await groupOfEntries(this.#fileSystem, folderOf(path)) : undefined;
        if (gid === undefined) await this.#fileSystem.makeDirectory(path, owner, MODE);
        else await this.#fileSystem.makeDirectory(path, { ...owner, gid }, MODE | SETGID);
        this.#made.push(path);
      } catch (error) {
        // Somebody else made it meanwhile, or the path names it twice ("a//b", "a/.").
        if (!(error instanceof FileSystemError) || error.errno !== "EEXIST") throw error;
      }
    }
  }

  /** Removes those folders that are still empty. */
  async takeBack(): Promise<void> {
    for (const path of this.#made.toReversed()) await this.#fileSystem.removeDirectory(path);
  }

  async #exists(path: FilePath): Promise<boolean> {
    try {
      await this.#fileSystem.stat(path, false);
      return true;
    } catch (error) {
      if (error instanceof FileSystemError && error.errno === "ENOENT") return false;
      throw error;
    }
  }
}
