import { type FileLocation, type FilePath, folderOf, invalidField } from "../domain/index.ts";

const SLASH = 0x2f;

/** What to list. */
export interface ListRequest extends FileLocation {
  /** Levels of folders. 0: 1. */
  readonly depth: number;
  /** 0: no limit. */
  readonly maxEntries: bigint;
  readonly crossMounts: boolean;
}

/** A folder to make. Undefined attributes get the defaults. */
export interface MakeFolderRequest extends FileLocation {
  readonly parents: boolean;
  readonly mode?: number | undefined;
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
  readonly exclusive: boolean;
}

/** A symbolic link to make. */
export interface MakeLinkRequest extends FileLocation {
  readonly target: Uint8Array;
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
}

/** What to remove. */
export interface RemoveRequest extends FileLocation {
  readonly recursive: boolean;
}

/** What to rename. */
export interface RenameRequest extends FileLocation {
  readonly newPath: FilePath;
  readonly exclusive: boolean;
}

/** Attributes to set, those that are not undefined. */
export interface SetAttributesRequest extends FileLocation {
  readonly follow: boolean;
  readonly mode?: number | undefined;
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
  /** In nanoseconds since 1970. */
  readonly modifiedNs: bigint | undefined;
}

/** A path, divided before its last name, which is never followed. */
export interface NamedEntry {
  readonly folder: FilePath;
  readonly name: FilePath;
}

/** Divides a path. Throws AgentError if it does not end in a name (`/`, `.`, `..`). */
export function namedEntry(path: FilePath, field: string): NamedEntry {
  let end = path.length;
  while (end > 1 && path[end - 1] === SLASH) end -= 1;
  const trimmed = path.subarray(0, end);
  const name = trimmed.subarray(trimmed.lastIndexOf(SLASH) + 1);
  if (["", ".", ".."].includes(Buffer.from(name).toString("latin1")))
    throw invalidField(field, "must end in a name: neither / nor the folder given as beneath, and no dots");
  return { folder: folderOf(trimmed), name };
}
