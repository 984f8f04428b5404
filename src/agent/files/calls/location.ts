import { FileSystemError, invalidField } from "../../domain/index.ts";
import { type FileAction, fileFailure, wrongType } from "./failure.ts";
import type { FilePath, GivenAttributes } from "../attributes.ts";
import type { FileSystem, FileTree } from "../open/file-system.ts";
import type { OpenDirectory } from "../open/directory.ts";
import { SLASH } from "../open/names.ts";

/** chown(2) takes (uid_t)-1 for "leave unchanged", so the largest id is one less. */
const MAX_ID = 2 ** 32 - 2;
const MAX_MODE = 0o7777;

/** A path, and the rules for its lookup. */
export interface FileLocation {
  /** The path: absolute, or relative to `beneath`. */
  readonly path: FilePath;
  /** The directory that the path may not leave. An empty string means that the path is not restricted. */
  readonly beneath: FilePath;
  /** Whether a path with a symbolic link is rejected. Allowed only with `beneath`. */
  readonly noSymlinks: boolean;
}

/** The path as text. Bytes that are not UTF-8 become U+FFFD. */
export function pathText(path: FilePath): string {
  return Buffer.from(path.buffer, path.byteOffset, path.length).toString();
}

/** The full path as text, `beneath` included. */
export function wholePath({ path, beneath }: Pick<FileLocation, "path" | "beneath">): string {
  return beneath.length === 0 ? pathText(path) : `${pathText(beneath).replace(/\/+$/, "")}/${pathText(path)}`;
}

/**
 * Rejects a path that is empty, contains a NUL, or is relative without `beneath`. The kernel checks the length of the
 * path.
 */
export function checkFilePath({ path, beneath, noSymlinks }: FileLocation, field = "path"): void {
  if (path.length === 0) throw invalidField(field, "is empty");
  if (path.includes(0)) throw invalidField(field, "contains a NUL byte");
  if (beneath.length === 0) {
    if (path[0] !== SLASH) throw invalidField(field, "must be absolute");
    if (noSymlinks)
      throw invalidField("no_symlinks", "requires `beneath`, because links are rejected only below that directory");
    return;
  }
  if (path[0] === SLASH) throw invalidField(field, "must be relative, because `beneath` is set");
  if (beneath.includes(0)) throw invalidField("beneath", "contains a NUL byte");
  if (beneath[0] !== SLASH) throw invalidField("beneath", "must be absolute");
}

/** Throws AgentError if the mode or an id is out of range. */
export function checkAttributes({ mode, uid, gid }: GivenAttributes, fault: typeof invalidField = invalidField): void {
  if (mode !== undefined && mode > MAX_MODE) throw fault("mode", "has bits beyond 07777");
  if (uid !== undefined && uid > MAX_ID) throw fault("uid", `is larger than ${MAX_ID}`);
  if (gid !== undefined && gid > MAX_ID) throw fault("gid", `is larger than ${MAX_ID}`);
}

/**
 * Runs `run` on the whole file system, or on the part below `beneath`. Turns a FileSystemError into an AgentError that
 * has the path.
 */
export async function inTree<Value>(
  fileSystem: FileSystem,
  action: FileAction,
  location: FileLocation,
  run: (tree: FileTree) => Promise<Value>,
): Promise<Value> {
  const { beneath, noSymlinks } = location;
  const within = (tree: FileTree): Promise<Value> => translated(action, wholePath(location), () => run(tree));
  if (beneath.length === 0) return within(fileSystem);
  await using view = await translated(action, pathText(beneath), () => fileSystem.beneath(beneath, noSymlinks));
  return await within(view);
}

/** Opens a directory for reading. If the path names something else, the error says what it is. */
export async function openTree(tree: FileTree, location: FileLocation): Promise<OpenDirectory> {
  try {
    return await tree.openTree(location.path, "read");
  } catch (error) {
    if (!(error instanceof FileSystemError) || error.errno !== "ENOTDIR") throw error;
    const { type } = await tree.stat(location.path, false);
    throw wrongType("list", wholePath(location), type, "directory");
  }
}

/** Turns a FileSystemError of `run` into an AgentError that names the path. */
async function translated<Value>(action: FileAction, path: string, run: () => Promise<Value>): Promise<Value> {
  try {
    return await run();
  } catch (error) {
    throw error instanceof FileSystemError ? fileFailure(error, action, path) : error;
  }
}
