import { type DividedPath, splitPath } from "../open/names.ts";
import type { FileLocation } from "./location.ts";
import type { FilePath, GivenAttributes } from "../attributes.ts";
import { invalidField } from "../../domain/index.ts";
import type { TreeOptions } from "./write-tree.ts";

/** What to list. */
export interface ListRequest extends FileLocation {
  /** Levels of folders. 0: 1. */
  readonly depth: number;
  /** 0: no limit. */
  readonly maxEntries: bigint;
  readonly crossMounts: boolean;
}

/** A folder to make. Undefined attributes get the defaults. */
export interface MakeFolderRequest extends FileLocation, GivenAttributes {
  readonly parents: boolean;
  readonly exclusive: boolean;
}

/** A symbolic link to make. */
export interface MakeLinkRequest extends FileLocation, Omit<GivenAttributes, "mode"> {
  readonly target: Uint8Array;
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

/** Where a tree is written, and how. */
export interface WriteTreeRequest extends FileLocation, TreeOptions {
  /** Make the folder, with missing ones above it. */
  readonly parents: boolean;
}

/** Attributes to set, those that are not undefined. */
export interface SetAttributesRequest extends FileLocation, GivenAttributes {
  readonly follow: boolean;
  /** In nanoseconds since 1970. */
  readonly modifiedNs: bigint | undefined;
}

/** Divides a path before its last name, which is never followed. Throws AgentError without one (`/`, `.`, `..`). */
export function namedEntry(path: FilePath, field: string): DividedPath {
  const divided = splitPath(path);
  if (["", ".", ".."].includes(Buffer.from(divided.name).toString("latin1")))
    throw invalidField(field, "must end in a name; /, . and .. are none");
  return divided;
}
