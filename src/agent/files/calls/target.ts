import { type Accounts, AgentError, FileSystemError, invalidField } from "../../domain/index.ts";
import { attributesOf } from "../entries/created-directories.ts";
import { dirname, isReservedName, SLASH } from "../open/names.ts";
import { MAX_LINKS } from "../open/paths.ts";
import type { FileAttributes, FileOwner, FilePath } from "../attributes.ts";
import type { FileTree } from "../open/file-system.ts";
import { PathEscapes } from "../open/path-escapes.ts";
import { wrongType } from "./failure.ts";
import { pathText, wholePath } from "./location.ts";
import { resolveUser } from "../../session/index.ts";
import type { WriteRequest } from "./file-requests.ts";

export interface Target {
  readonly path: FilePath;
  /** Attributes of the file that is replaced; undefined if the file is new. */
  readonly existing: FileAttributes | undefined;
}

/**
 * Finds the file that a write replaces or creates. Like open(2), follows symbolic links, even dangling ones. Throws
 * AgentError or FileSystemError.
 */
export async function findTarget(fileSystem: FileTree, request: WriteRequest): Promise<Target> {
  let { path } = request;
  for (let links = 0; links <= MAX_LINKS; links++) {
    const existing = await attributesOf(fileSystem, path, true);
    if (existing === undefined && isReservedName(path.subarray(path.lastIndexOf(SLASH) + 1)))
      throw invalidField("path", "must not end in a slash or a dot");
    if (existing === undefined) return { path, existing };
    if (request.exclusive) throw alreadyExists(request);
    if (existing.type === "regular") return { path, existing };
    if (existing.type !== "symlink") throw wrongType("write", wholePath(request), existing.type, "regular file");
    if (request.noSymlinks) throw new PathEscapes("readlink", "ELOOP", true);
    path = resolveFrom(dirname(path), await fileSystem.readLink(path));
  }
  throw request.beneath.length === 0 ? new FileSystemError("stat", "ELOOP") : new PathEscapes("stat", "ELOOP", false);
}

export function alreadyExists(request: WriteRequest): AgentError {
  const path = pathText(request.path);
  const message = `cannot write ${JSON.stringify(path)}: it already exists, and the write is exclusive`;
  return new AgentError("ALREADY_EXISTS", "ALREADY_EXISTS", message, { path });
}

/** Resolves a link's target against the directory of the link. */
function resolveFrom(directory: FilePath, target: FilePath): FilePath {
  return target[0] === SLASH ? target : Buffer.concat([directory, Uint8Array.of(SLASH), target]);
}

/**
 * Returns a function that looks up the owner of new files: the workload's user, or the agent's own user if none is
 * configured. It looks again at each call, because the user database may change.
 */
export function sessionOwner(accounts: Accounts, user: string, own: FileOwner): () => Promise<FileOwner> {
  return async () => {
    if (user === "") return own;
    const [passwd, group] = await Promise.all([accounts.passwd(), accounts.group()]);
    const { uid, gid } = resolveUser(user, passwd, group).identity;
    return { uid, gid };
  };
}
