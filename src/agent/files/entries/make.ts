import type { FileOwner, FilePath, GivenAttributes } from "../attributes.ts";
import type { Descriptor } from "../open/descriptor.ts";
import type { FileTree } from "../open/file-system.ts";
import type { OpenFolder } from "../open/folder.ts";
import { splitPath } from "../open/names.ts";
import { ENTRY, packEntry } from "./record.ts";

const NONE = Buffer.alloc(0);

/** Attributes of a new directory or link; `owner` is what a request does not give. */
export interface NewAttributes extends GivenAttributes {
  readonly owner: FileOwner;
}

/**
 * Makes a directory with its attributes and syncs the one above, or makes none. Without a mode it has 0755, with setgid
 * where it takes its group from a setgid directory.
 */
export async function makeDirectory(tree: FileTree, path: FilePath, attributes: NewAttributes): Promise<void> {
  const { folder, name } = splitPath(path);
  await using above = await tree.openFolder("mkdir", folder, "change");
  const late = (): void => void removeEntry(above, name, true);
  const how = { step: "mkdir", on: [above.descriptor], late } as const;
  const record = packEntry({ ...attributes, path: name, type: ENTRY.folder });
  await above.work.native(how, (addon) => addon.makeEntry(above.descriptor.fd, record, NONE, 0));
  try {
    await above.sync();
  } catch (error) {
    await removeEntry(above, name, true);
    throw error;
  }
}

/** Makes a symbolic link. Rejects at the step "chown" where it is there, but cannot have its owner. */
export async function makeLink(
  above: OpenFolder,
  name: FilePath,
  target: Uint8Array,
  attributes: NewAttributes,
): Promise<void> {
  const record = packEntry({ ...attributes, path: name, type: ENTRY.symlink, content: target });
  await above.descriptor.native("symlink", (addon, fd) => addon.makeEntry(fd, record, NONE, 0));
}

/** Sets the attributes of an open entry that are given. */
export async function setAttributes(
  entry: Descriptor,
  attributes: GivenAttributes & { readonly modifiedNs: bigint | undefined },
): Promise<void> {
  const record = packEntry({ ...attributes, path: NONE, type: ENTRY.attributes });
  await entry.native("chmod", (addon, fd) => addon.setAttributes(fd, record));
}

/** Removes an entry, if possible; a directory only if it is empty. Never rejects. */
export async function removeEntry(above: OpenFolder, name: FilePath, isFolder: boolean): Promise<void> {
  const { work, descriptor } = above;
  await work.attempt(descriptor, () => work.addon.removeIn(descriptor.fd, name, isFolder));
}
