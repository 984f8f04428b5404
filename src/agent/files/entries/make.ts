import type { FileOwner, FilePath, GivenAttributes } from "../attributes.ts";
import type { Descriptor } from "../open/descriptor.ts";
import type { FileTree } from "../open/file-system.ts";
import type { OpenDirectory } from "../open/directory.ts";
import { splitPath } from "../open/names.ts";
import { ENTRY, packEntry } from "./record.ts";

const NONE = Buffer.alloc(0);

/** Attributes of a new directory or link. `owner` supplies the ids that the request leaves out. */
export interface NewAttributes extends GivenAttributes {
  readonly owner: FileOwner;
}

/**
 * Creates a directory with its attributes and syncs its parent, or creates nothing. If no mode is requested, the mode
 * is 0755, plus setgid if the directory inherits its group from a setgid parent.
 */
export async function makeDirectory(tree: FileTree, path: FilePath, attributes: NewAttributes): Promise<void> {
  const { directory, name } = splitPath(path);
  await using above = await tree.openDirectory("mkdir", directory, "change");
  const late = (): void => void removeEntry(above, name, true);
  const how = { step: "mkdir", on: [above.descriptor], late } as const;
  const record = packEntry({ ...attributes, path: name, type: ENTRY.directory });
  await above.work.native(how, (addon) => addon.makeEntry(above.descriptor.fd, record, NONE, 0));
  try {
    await above.sync();
  } catch (error) {
    await removeEntry(above, name, true);
    throw error;
  }
}

/** Creates a symbolic link. If it rejects at the step "chown", the link exists with the wrong owner. */
export async function makeLink(
  above: OpenDirectory,
  name: FilePath,
  target: Uint8Array,
  attributes: NewAttributes,
): Promise<void> {
  const record = packEntry({ ...attributes, path: name, type: ENTRY.symlink, content: target });
  await above.descriptor.native("symlink", (addon, fd) => addon.makeEntry(fd, record, NONE, 0));
}

/** Sets attributes of an open entry. An undefined attribute stays unchanged. */
export async function setAttributes(
  entry: Descriptor,
  attributes: GivenAttributes & { readonly modifiedNs: bigint | undefined },
): Promise<void> {
  const record = packEntry({ ...attributes, path: NONE, type: ENTRY.attributes });
  await entry.native("chmod", (addon, fd) => addon.setAttributes(fd, record));
}

/** Removes an entry if possible; a directory only if it is empty. Never rejects. */
export async function removeEntry(above: OpenDirectory, name: FilePath, isDirectory: boolean): Promise<void> {
  const { work, descriptor } = above;
  await work.attempt(descriptor, () => work.addon.removeIn(descriptor.fd, name, isDirectory));
}
