import { type DividedPath, splitPath } from "../open/names.ts";
import type { FileLocation } from "./location.ts";
import type { FilePath, GivenAttributes } from "../attributes.ts";
import { invalidField } from "../../domain/index.ts";
import type { TreeOptions } from "./write-tree.ts";

export interface ListRequest extends FileLocation {
  /** Number of directory levels; 0 means 1. */
  readonly depth: number;
  /** Largest number of entries to list; 0 means no limit. */
  readonly maxEntries: bigint;
  readonly crossMounts: boolean;
}

/** A directory to create. Undefined attributes get defaults. */
export interface MakeFolderRequest extends FileLocation, GivenAttributes {
  readonly parents: boolean;
  readonly exclusive: boolean;
}

export interface MakeLinkRequest extends FileLocation, Omit<GivenAttributes, "mode"> {
  readonly target: Uint8Array;
}

export interface RemoveRequest extends FileLocation {
  readonly recursive: boolean;
}

export interface RenameRequest extends FileLocation {
  readonly newPath: FilePath;
  readonly exclusive: boolean;
}

export interface WriteTreeRequest extends FileLocation, TreeOptions {
  /** Whether to create the directory and its missing parents. */
  readonly parents: boolean;
}

/** Attributes to set. An undefined attribute stays unchanged. */
export interface SetAttributesRequest extends FileLocation, GivenAttributes {
  readonly follow: boolean;
  /** Modification time in nanoseconds since 1970. */
  readonly modifiedNs: bigint | undefined;
}

/**
 * Splits a path before its last name, so that a symbolic link of that name is not followed. Throws AgentError if the
 * path has no last name (`/`, `.`, `..`).
 */
export function namedEntry(path: FilePath, field: string): DividedPath {
  const divided = splitPath(path);
  if (["", ".", ".."].includes(Buffer.from(divided.name).toString("latin1")))
    throw invalidField(field, "must end in a name other than . and ..");
  return divided;
}
