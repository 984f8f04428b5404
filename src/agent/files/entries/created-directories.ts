import { FileSystemError } from "../../domain/index.ts";
import type { FileAttributes, FileOwner, FilePath, GivenAttributes } from "../attributes.ts";
import type { FileTree } from "../open/file-system.ts";
import { dirname, splitPath } from "../open/names.ts";
import { makeDirectory, type NewAttributes, removeEntry } from "./make.ts";

/** Attributes of a path, or undefined if it does not exist. */
export async function attributesOf(
  tree: FileTree,
  path: FilePath,
  noFollow: boolean,
): Promise<FileAttributes | undefined> {
  try {
    return await tree.stat(path, noFollow);
  } catch (error) {
    if (error instanceof FileSystemError && error.errno === "ENOENT") return undefined;
    throw error;
  }
}

/** Directories that were created for an entry. `rollback` removes them if the entry itself cannot be created. */
export class CreatedDirectories {
  readonly #tree: FileTree;
  readonly #made: FilePath[] = [];

  constructor(tree: FileTree) {
    this.#tree = tree;
  }

  /** Creates a directory of mode 0755, with its missing parents. */
  async make(directory: FilePath, { uid, gid, owner }: NewAttributes): Promise<void> {
    const missing: FilePath[] = [];
    for (let path = directory; (await attributesOf(this.#tree, path, false)) === undefined; path = dirname(path))
      missing.push(path);
    for (const path of missing.toReversed()) {
      try {
        await makeDirectory(this.#tree, path, { uid, gid, owner });
        this.#made.push(path);
      } catch (error) {
        // EEXIST is not a failure: another process has created the directory in the meantime, or the path names it
        // twice ("a//b", "a/.").
        if (!(error instanceof FileSystemError) || error.errno !== "EEXIST") throw error;
      }
    }
  }

  /** Removes the created directories that are still empty. Never rejects. */
  async rollback(): Promise<void> {
    for (const path of this.#made.toReversed()) await this.#remove(path);
  }

  async #remove(path: FilePath): Promise<void> {
    const { directory, name } = splitPath(path);
    await using above = await this.#tree.openDirectory("mkdir", directory, "change").catch(() => undefined);
    if (above !== undefined) await removeEntry(above, name, true);
  }
}

/** Returns the owner and group that the request sets. If it does not set one of them, that id is taken from `otherwise`. */
export async function ownerOf(
  { uid, gid }: GivenAttributes,
  otherwise: () => FileOwner | Promise<FileOwner>,
): Promise<FileOwner> {
  if (uid !== undefined && gid !== undefined) return { uid, gid };
  const fallback = await otherwise();
  return { uid: uid ?? fallback.uid, gid: gid ?? fallback.gid };
}
