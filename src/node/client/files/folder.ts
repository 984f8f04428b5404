import { createReadStream, lstatSync, readdirSync, readFileSync, readlinkSync, type Stats, statSync } from "node:fs";
import { unpack } from "../../tar/index.ts";
import type { FolderClient } from "./tree.ts";
import type { GuestPath } from "./path.ts";
import type { ReadTreeOptions } from "./read-tree.ts";
import type { TreeEntry } from "./tree-entry.ts";
import type { WriteTreeOptions } from "./write-tree.ts";

/** What of a folder was copied. */
export interface FolderCopy {
  readonly files: number;
  readonly bytes: number;
  /** Paths that were left out, from the folder on: devices, FIFOs and sockets, and what could not be read in the guest. */
  readonly skipped: readonly string[];
}

const NONE = Buffer.alloc(0);
const SLASH = Buffer.from("/");
/** Read in one step, on this thread. */
const SMALL_BYTES = 64 * 1024;

/** Copies a folder of this machine into the guest: GuestClient.uploadFolder. */
export async function uploadFolder(
  client: FolderClient,
  local: string,
  path: GuestPath,
  options: WriteTreeOptions,
): Promise<FolderCopy> {
  const root = statSync(local);
  const done = { files: 0, bytes: 0, skipped: [] as string[] };
  const entries = localEntries(Buffer.from(local), NONE, done);
  await client.writeTree(path, entries, { parents: true, overwrite: true, failFast: true, ...options });
  const { beneath, noSymlinks, signal } = options;
  await client.setAttributes(path, { mode: root.mode & 0o777, mtime: root.mtime }, { beneath, noSymlinks, signal });
  return done;
}

/** All below a folder, by name, folders before what is in them. Follows no link. */
async function* localEntries(
  folder: Buffer,
  above: Buffer,
  done: { files: number; bytes: number; readonly skipped: string[] },
): AsyncGenerator<TreeEntry> {
  const names = readdirSync(folder, { encoding: "buffer" }).toSorted((one, other) => one.compare(other));
  for (const child of names) {
    const name = above.length === 0 ? child : Buffer.concat([above, SLASH, child]);
    const path = Buffer.concat([folder, SLASH, child]);
    const stats = lstatSync(path);
    const { mode, size, mtimeMs } = stats;
    const head = {
      name,
      linkName: NONE,
      mode,
      modifiedSeconds: mtimeMs / 1_000,
      sizeBytes: 0,
      content: contentOf(path, 0),
    };
    if (stats.isDirectory()) {
      yield { ...head, type: "directory" };
      yield* localEntries(path, name, done);
    } else if (stats.isSymbolicLink())
      yield { ...head, type: "symlink", linkName: readlinkSync(path, { encoding: "buffer" }) };
    else if (stats.isFile()) {
      yield { ...head, type: "file", sizeBytes: size, sparse: hasHoles(stats), content: contentOf(path, size) };
      done.files += 1;
      done.bytes += size;
    } else done.skipped.push(name.toString());
  }
}

function hasHoles({ blocks, size }: Stats): boolean {
  return blocks * 512 < size;
}

/** As much as the file had when it was looked at: an entry is as long as it says. */
async function* contentOf(path: Buffer, sizeBytes: number): AsyncGenerator<Buffer> {
  if (sizeBytes === 0) return;
  const source: AsyncIterable<Buffer> | readonly Buffer[] =
    sizeBytes <= SMALL_BYTES
      ? [readFileSync(path).subarray(0, sizeBytes)]
      : createReadStream(path, { end: sizeBytes - 1, highWaterMark: 4 * SMALL_BYTES });
  yield* whole(path, sizeBytes, source);
}

/** Throws where a file has become shorter: a part is not to be taken for the whole. */
async function* whole(
  name: Buffer,
  sizeBytes: number,
  content: AsyncIterable<Buffer> | readonly Buffer[],
): AsyncGenerator<Buffer> {
  let read = 0;
  for await (const bytes of content) {
    read += bytes.length;
    yield bytes;
  }
  if (read < sizeBytes) throw new Error(`${name.toString()} became shorter while it was being copied; copy it again`);
}

/** Options of `downloadFolder`. */
export type DownloadFolderOptions = Pick<ReadTreeOptions, "crossMounts" | "signal" | "timeoutMs">;

/**
 * Copies a folder of the guest to this machine: GuestClient.downloadFolder.
 *
 * @param mode of the folder itself
 */
export async function downloadFolder(
  client: FolderClient,
  { path, mode }: { readonly path: GuestPath; readonly mode: number },
  local: string,
  options: DownloadFolderOptions,
): Promise<FolderCopy> {
  const tree = client.readTree(path, { crossMounts: true, ...options });
  async function* entries(): AsyncGenerator<TreeEntry> {
    const nothing = { name: NONE, linkName: NONE, sizeBytes: 0, content: contentOf(NONE, 0) };
    const root = { ...nothing, type: "directory", mode, modifiedSeconds: 0 } as const;
    let isBegun = false;
    // The folder itself first, but only once the agent has it open.
    for await (const entry of tree) {
      if (!isBegun) yield root;
      isBegun = true;
      yield { ...entry, content: whole(entry.name, entry.sizeBytes, entry.content) };
    }
    if (!isBegun) yield root;
  }
  const copied = await unpack(local, entries());
  return { ...copied, skipped: tree.result?.failures.map(({ name }) => name) ?? [] };
}
