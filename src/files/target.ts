import {
  AgentError,
  type FileAttributes,
  type FilePath,
  FileSystemError,
  type FileTree,
  invalidField,
  PathEscapes,
} from "../domain/index.ts";
import { notARegularFile } from "./failure.ts";
import { endsInName, folderOf, resolveFrom } from "./paths.ts";
import type { WriteRequest } from "./requests.ts";

/** Most symbolic links on a path, as in the kernel (path_resolution(7)). */
const MAX_LINKS = 40;

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
    const existing = await attributesOf(fileSystem, path);
    if (existing === undefined && !endsInName(path))
      throw invalidField("path", "ends in a slash or dot: no file's path");
    if (existing === undefined) return { path, existing };
    if (request.exclusive) throw alreadyExists(request.path);
    if (existing.type === "regular") return { path, existing };
    if (existing.type !== "symlink") throw notARegularFile("write", request.path, existing.type);
    if (request.noSymlinks) throw new PathEscapes("readlink", "ELOOP");
    path = resolveFrom(folderOf(path), await fileSystem.readLink(path));
  }
  throw new FileSystemError("stat", "ELOOP");
}

async function attributesOf(fileSystem: FileTree, path: FilePath): Promise<FileAttributes | undefined> {
  try {
    return await fileSystem.stat(path, true);
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
