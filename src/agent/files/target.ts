import {
  type Accounts,
  AgentError,
  type FileAttributes,
  type FileOwner,
  type FilePath,
  FileSystemError,
  type FileTree,
  invalidField,
  PathEscapes,
} from "../domain/index.ts";
import { resolveUser } from "../session/index.ts";
import { notARegularFile } from "./failure.ts";
import { wholePath, type WriteRequest } from "./requests.ts";

/** Most symbolic links on a path, as in the kernel (path_resolution(7)). */
const MAX_LINKS = 40;
const FOLDER_MODE = 0o755;
/** Mode of a folder whose new entries get its group (inode(7)). */
const SETGID = 0o2000;
const SLASH = 0x2f;
const DOT = 0x2e;

/** The file that a write replaces or creates. */
export interface Target {
  readonly path: FilePath;
  /** Of the file being replaced; undefined where there is none. */
  readonly existing: FileAttributes | undefined;
}

/**
 * Finds the file that a write replaces or creates. Follows symbolic links, also dangling ones, as open(2) does. An
 * exclusive write fails if the path has any entry, a link included. Throws AgentError or FileSystemError.
 */
export async function findTarget(fileSystem: FileTree, request: WriteRequest): Promise<Target> {
  let path: FilePath = Buffer.from(request.path);
  for (let links = 0; links <= MAX_LINKS; links++) {
    const existing = await attributesOf(fileSystem, path, true);
    if (existing === undefined && !endsInName(path))
      throw invalidField("path", "ends in a slash or dot: no file's path");
    if (existing === undefined) return { path, existing };
    if (request.exclusive) throw alreadyExists(request.path);
    if (existing.type === "regular") return { path, existing };
    if (existing.type !== "symlink") throw notARegularFile("write", wholePath(request), existing.type);
    if (request.noSymlinks) throw new PathEscapes("readlink", "ELOOP", true);
    path = resolveFrom(folderOf(path), await fileSystem.readLink(path));
  }
  throw request.beneath === "" ? new FileSystemError("stat", "ELOOP") : new PathEscapes("stat", "ELOOP", false);
}

/** Undefined where there is nothing. */
async function attributesOf(tree: FileTree, path: FilePath, noFollow: boolean): Promise<FileAttributes | undefined> {
  try {
    return await tree.stat(path, noFollow);
  } catch (error) {
    if (error instanceof FileSystemError && error.errno === "ENOENT") return undefined;
    throw error;
  }
}

/** The refusal of an exclusive write. */
export function alreadyExists(path: string): AgentError {
  const message = `cannot write ${JSON.stringify(path)}: it exists already, and the write is exclusive`;
  return new AgentError("ALREADY_EXISTS", "ALREADY_EXISTS", message, { path });
}

/** The folder part of a path as it is written, without resolving anything. */
export function folderOf(path: FilePath): FilePath {
  const slash = path.lastIndexOf(SLASH);
  if (slash < 0) return Uint8Array.of(DOT);
  return path.subarray(0, slash === 0 ? 1 : slash);
}

/** A symbolic link's target, seen from the folder that the link is in. */
function resolveFrom(folder: FilePath, target: FilePath): FilePath {
  return target[0] === SLASH ? target : Buffer.concat([folder, Uint8Array.of(SLASH), target]);
}

/** Whether the path's last part is a name, and not empty, "." or "..". */
function endsInName(path: FilePath): boolean {
  const name = path.subarray(path.lastIndexOf(SLASH) + 1);
  return name.some((byte) => byte !== DOT) || name.length > 2;
}

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
    for (let path = folder; (await attributesOf(this.#fileSystem, path, false)) === undefined; path = folderOf(path))
      missing.push(path);
    for (const path of missing.toReversed()) {
      try {
        const gid = inherit ? await groupOfEntries(this.#fileSystem, folderOf(path)) : undefined;
        if (gid === undefined) await this.#fileSystem.makeDirectory(path, owner, FOLDER_MODE);
        else await this.#fileSystem.makeDirectory(path, { ...owner, gid }, FOLDER_MODE | SETGID);
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
}

/** The group that a setgid folder gives to its new entries; undefined for other folders, and where stat(2) fails. */
export async function groupOfEntries(fileSystem: FileTree, folder: FilePath): Promise<number | undefined> {
  try {
    const { mode, gid } = await fileSystem.stat(folder, false);
    return (mode & SETGID) === 0 ? undefined : gid;
  } catch (error) {
    // Creating the entry will fail too, with an error that says why.
    if (error instanceof FileSystemError) return undefined;
    throw error;
  }
}

/**
 * Owner of files that the session creates: the workload's user, looked up every time; without a user the agent's own
 * identity.
 */
export function sessionOwner(accounts: Accounts, user: string, own: FileOwner): () => Promise<FileOwner> {
  return async () => {
    if (user === "") return own;
    const [passwd, group] = await Promise.all([accounts.passwd(), accounts.group()]);
    const { uid, gid } = resolveUser(user, passwd, group).identity;
    return { uid, gid };
  };
}
