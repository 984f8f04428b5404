import { FileSystemError, invalidField } from "../../domain/index.ts";
import { type FileAction, fileFailure } from "./failure.ts";
import type { FilePath, GivenAttributes } from "../attributes.ts";
import type { FileSystem, FileTree } from "../open/file-system.ts";
import { SLASH } from "../open/names.ts";

/** (uid_t)-1 means "unchanged" to chown(2). */
const MAX_ID = 2 ** 32 - 2;
const MAX_MODE = 0o7777;

/** A path, and the limits of its lookup. */
export interface FileLocation {
  /** Absolute; relative with `beneath`. */
  readonly path: FilePath;
  /** A folder that the path may not leave; empty: anywhere. */
  readonly beneath: FilePath;
  /** With `beneath`: the path may contain no symbolic link. */
  readonly noSymlinks: boolean;
}

/** A path for people: bytes that are no UTF-8 become U+FFFD. */
export function pathText(path: FilePath): string {
  return Buffer.from(path.buffer, path.byteOffset, path.length).toString();
}

/** The path as people know it, with the folder that it is relative to. */
export function wholePath({ path, beneath }: Pick<FileLocation, "path" | "beneath">): string {
  return beneath.length === 0 ? pathText(path) : `${pathText(beneath).replace(/\/+$/, "")}/${pathText(path)}`;
}

/** Refuses a path that is empty, holds a NUL, or is relative where it may not be. The kernel judges its length. */
export function checkFilePath({ path, beneath, noSymlinks }: FileLocation, field = "path"): void {
  if (path.length === 0) throw invalidField(field, "is empty");
  if (path.includes(0)) throw invalidField(field, "holds a NUL");
  if (beneath.length === 0) {
    if (path[0] !== SLASH) throw invalidField(field, "is relative; give an absolute one");
    if (noSymlinks) throw invalidField("no_symlinks", "needs beneath: the folder from which on no link is followed");
    return;
  }
  if (path[0] === SLASH) throw invalidField(field, "is absolute; with beneath it is relative to that folder");
  if (beneath.includes(0)) throw invalidField("beneath", "holds a NUL");
  if (beneath[0] !== SLASH) throw invalidField("beneath", "is relative; give an absolute one");
}

/** Throws AgentError for invalid permission bits or ids. */
export function checkAttributes({ mode, uid, gid }: GivenAttributes, fault: typeof invalidField = invalidField): void {
  if (mode !== undefined && mode > MAX_MODE) throw fault("mode", "has bits beyond 07777");
  if (uid !== undefined && uid > MAX_ID) throw fault("uid", `is larger than ${MAX_ID}`);
  if (gid !== undefined && gid > MAX_ID) throw fault("gid", `is larger than ${MAX_ID}`);
}

/** Runs something in the part of the file system that the location names. Throws AgentError, with the path. */
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

/** Runs something with a path, and turns its FileSystemError into an AgentError that names the path. */
async function translated<Value>(action: FileAction, path: string, run: () => Promise<Value>): Promise<Value> {
  try {
    return await run();
  } catch (error) {
    throw error instanceof FileSystemError ? fileFailure(error, action, path) : error;
  }
}
