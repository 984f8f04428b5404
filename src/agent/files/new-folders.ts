import { FileSystemError } from "../domain/index.ts";
import type { FileAttributes, FileOwner, FilePath, GivenAttributes } from "./attributes.ts";
import type { FileTree } from "./paths/file-system.ts";
import { folderOf } from "./paths/names.ts";

const FOLDER_MODE = 0o755;
/** Mode of a folder whose new entries get its group (inode(7)). */
const SETGID = 0o2000;

/** Attributes of a path; undefined: it does not exist. */
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

/** Folders that were made for a file. They are removed again if the file is not written. */
export class Parents {
  readonly #fileSystem: FileTree;
  readonly #made: FilePath[] = [];

  constructor(fileSystem: FileTree) {
    this.#fileSystem = fileSystem;
  }

  /** Makes a folder and missing ones above it. */
  async make(folder: FilePath, owner: FileOwner, inherit: boolean): Promise<void> {
    const missing: FilePath[] = [];
    for (let path = folder; (await attributesOf(this.#fileSystem, path, false)) === undefined; path = folderOf(path))
      missing.push(path);
    for (const path of missing.toReversed()) {
      try {
        await makeFolder(this.#fileSystem, path, owner, inherit);
        this.#made.push(path);
      } catch (error) {
        // Another process created it in the meantime, or the path names it twice ("a//b", "a/.").
        if (!(error instanceof FileSystemError) || error.errno !== "EEXIST") throw error;
      }
    }
  }

  /** Removes those folders that are still empty. */
  async takeBack(): Promise<void> {
    for (const path of this.#made.toReversed()) await this.#fileSystem.removeDirectory(path);
  }
}

/** Makes a folder. With `inherits`, a setgid folder above gives it its group and, where no mode is given, setgid. */
export async function makeFolder(
  tree: FileTree,
  path: FilePath,
  owner: FileOwner,
  inherits: boolean,
  mode?: number,
): Promise<void> {
  const owned = inherits ? await ownerInFolder(tree, folderOf(path), owner) : owner;
  await tree.makeDirectory(path, owned, mode ?? (owned === owner ? FOLDER_MODE : FOLDER_MODE | SETGID));
}

/** The owner that a request's fields name; what they leave out is that of `otherwise`. */
export async function ownerOf(
  { uid, gid }: GivenAttributes,
  otherwise: () => FileOwner | Promise<FileOwner>,
): Promise<FileOwner> {
  if (uid !== undefined && gid !== undefined) return { uid, gid };
  const fallback = await otherwise();
  return { uid: uid ?? fallback.uid, gid: gid ?? fallback.gid };
}

/** The owner of a new entry in a folder: `owner` itself, except that a setgid folder gives its group. */
export async function ownerInFolder(tree: FileTree, folder: FilePath, owner: FileOwner): Promise<FileOwner> {
  try {
    const { mode, gid } = await tree.stat(folder, false);
    return (mode & SETGID) === 0 ? owner : { ...owner, gid };
  } catch (error) {
    // Creating the entry will fail too, with an error that says why.
    if (error instanceof FileSystemError) return owner;
    throw error;
  }
}
