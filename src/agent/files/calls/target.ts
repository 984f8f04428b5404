import { type Accounts, AgentError, FileSystemError, invalidField } from "../../domain/index.ts";
import { attributesOf } from "../entries/created-directories.ts";
import { folderOf, isNoName, SLASH } from "../open/names.ts";
import { MAX_LINKS } from "../open/paths.ts";
import type { FileAttributes, FileOwner, FilePath } from "../attributes.ts";
import type { FileTree } from "../open/file-system.ts";
import { PathEscapes } from "../open/path-escapes.ts";
import { wrongType } from "./failure.ts";
import { pathText, wholePath } from "./location.ts";
import { resolveUser } from "../../session/index.ts";
import type { WriteRequest } from "./file-requests.ts";

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
  let { path } = request;
  for (let links = 0; links <= MAX_LINKS; links++) {
    const existing = await attributesOf(fileSystem, path, true);
    if (existing === undefined && isNoName(path.subarray(path.lastIndexOf(SLASH) + 1)))
      throw invalidField("path", "ends in a slash or dot: no file's path");
    if (existing === undefined) return { path, existing };
    if (request.exclusive) throw alreadyExists(request);
    if (existing.type === "regular") return { path, existing };
    if (existing.type !== "symlink") throw wrongType("write", wholePath(request), existing.type, "regular file");
    if (request.noSymlinks) throw new PathEscapes("readlink", "ELOOP", true);
    path = resolveFrom(folderOf(path), await fileSystem.readLink(path));
  }
  throw request.beneath.length === 0 ? new FileSystemError("stat", "ELOOP") : new PathEscapes("stat", "ELOOP", false);
}

/** The refusal of an exclusive write. */
export function alreadyExists(request: WriteRequest): AgentError {
  const path = pathText(request.path);
  const message = `cannot write ${JSON.stringify(path)}: it exists already, and the write is exclusive`;
  return new AgentError("ALREADY_EXISTS", "ALREADY_EXISTS", message, { path });
}

/** A symbolic link's target, seen from the folder that the link is in. */
function resolveFrom(folder: FilePath, target: FilePath): FilePath {
  return target[0] === SLASH ? target : Buffer.concat([folder, Uint8Array.of(SLASH), target]);
}

/** Owner of the session's new files: the workload's user, looked up every time, else the agent's own identity. */
export function sessionOwner(accounts: Accounts, user: string, own: FileOwner): () => Promise<FileOwner> {
  return async () => {
    if (user === "") return own;
    const [passwd, group] = await Promise.all([accounts.passwd(), accounts.group()]);
    const { uid, gid } = resolveUser(user, passwd, group).identity;
    return { uid, gid };
  };
}
