import { isUtf8 } from "node:buffer";
import { createHash } from "node:crypto";
import type { Stats } from "node:fs";
import { readlink } from "node:fs/promises";
import { posix } from "node:path";
import type { GuestClient } from "../../client/index.ts";
import { entryEnd, entryHead, TAR_END, type TarType } from "../../tar/index.ts";
import { CliError } from "../errors.ts";
import { startIfThere, startUnpacking, statIfThere } from "./guest-command.ts";
import { localContent, type LocalEntry, locally, localTree } from "./local-tree.ts";
import { type CopyParts, NOT_COPIED } from "./report.ts";

/**
 * Copies a file into the sandbox, with its mode, its time and its holes, and compares the checksums of both ends.
 *
 * @param folder the folder that the person named, where the file lies below it: then the agent follows no link out of that
 *   folder, which the workload may have put there
 */
export async function uploadFile(
  parts: CopyParts,
  local: string | Buffer,
  stats: Stats,
  remote: string,
  folder?: string,
): Promise<void> {
  const { client, progress, report, makesParents } = parts;
  const file = {
    size: BigInt(stats.size),
    mode: stats.mode & 0o7777,
    mtime: timestampOf(stats),
    sparse: holeBytes(stats) > 0,
    createParents: makesParents,
  };
  const hash = createHash("sha256");
  async function* content(): AsyncGenerator<Uint8Array> {
    for await (const bytes of localContent(local, stats.size, (count) => progress.add(count))) {
      hash.update(bytes);
      yield bytes;
    }
  }
  const path = folder === undefined ? remote : posix.relative(folder, remote);
  const { sha256 } = await client.writeFile(path, content(), { ...file, beneath: folder ?? "" });
  if (!hash.digest().equals(sha256)) throw new CliError(`${remote} arrived with another checksum; copy it again`);
  report.files += 1;
  report.bytes += stats.size;
}

/** A file with smaller holes goes through the archive: it is not worth a call of its own. */
const WORTHWHILE_HOLE_BYTES = 1024 * 1024;

/** Bytes of a file that take no room on this disk. */
function holeBytes({ size, blocks }: Stats): number {
  return size - blocks * 512;
}

function timestampOf({ mtimeMs }: Stats): { readonly seconds: bigint; readonly nanos: number } {
  const seconds = Math.floor(mtimeMs / 1_000);
  return { seconds: BigInt(seconds), nanos: Math.floor((mtimeMs - seconds * 1_000) * 1_000) * 1_000 };
}

const NEEDS_UTF8 = "its name is not UTF-8, and the image has no tar to make it with";
const NEEDS_TAR = "the image has no tar to make it with";

/**
 * Copies a directory into the sandbox: as one tar stream where the image has tar (and mkdir), else file by file, without
 * links and empty directories.
 */
export async function uploadTree(parts: CopyParts, local: string, remote: string): Promise<void> {
  const { client, makesParents } = parts;
  const isThere = (await statIfThere(client, remote)) !== undefined;
  if (!isThere && !makesParents && (await statIfThere(client, posix.dirname(remote))) === undefined) {
    throw new CliError(`cannot make ${remote} in the sandbox: its folder does not exist; --parents makes it`);
  }
  if (await uploadTar(parts, local, remote, isThere)) return;
  await uploadFiles(parts, local, remote);
}

async function uploadTar(parts: CopyParts, local: string, remote: string, isThere: boolean): Promise<boolean> {
  const { client, progress, report, makesParents } = parts;
  // First of all: without tar no directory must be made.
  const probe = await startIfThere(client, ["tar", "--help"]);
  if (probe === undefined) return false;
  await probe.wait().catch(() => undefined);
  if (!isThere) {
    const mkdir = await startIfThere(client, ["mkdir", ...(makesParents ? ["-p"] : []), "--", remote]);
    if (mkdir === undefined) return false;
    await mkdir.wait();
  }
  const sparse = await uploadSparse(parts, local, remote);
  const tar = await startUnpacking(client, remote);
  if (tar === undefined) return false;
  async function* archive(): AsyncGenerator<Buffer> {
    for await (const entry of localTree(local)) {
      if (sparse.has(entry.name.toString("latin1"))) continue;
      const type = tarTypeOf(entry);
      if (type === undefined) {
        report.skip(entry.path.toString(), NOT_COPIED);
        continue;
      }
      yield* tarEntry(entry, type, (bytes) => progress.add(bytes));
      if (type === "file") {
        report.files += 1;
        report.bytes += entry.stats.size;
      }
    }
    yield TAR_END;
  }
  await tar.feed(archive());
  return true;
}

/** The type of a local entry in an archive; undefined for devices, sockets and FIFOs, which are not copied. */
export function tarTypeOf({ stats }: LocalEntry): TarType | undefined {
  if (stats.isFile()) return "file";
  if (stats.isDirectory()) return "directory";
  return stats.isSymbolicLink() ? "symlink" : undefined;
}

/** The bytes of an entry: headers, content and padding. Calls `progress` with the size of each piece of content. */
export async function* tarEntry(
  entry: LocalEntry,
  type: TarType,
  progress: (bytes: number) => void,
): AsyncGenerator<Buffer> {
  const { stats, path } = entry;
  const sizeBytes = type === "file" ? stats.size : 0;
  const end = Buffer.from(type === "directory" && entry.name.length > 0 ? "/" : "");
  const name = Buffer.concat([Buffer.from("./"), entry.name, end]);
  const linkName = type === "symlink" ? await locally(path, readlink(path, { encoding: "buffer" })) : Buffer.alloc(0);
  const mode = stats.mode & 0o7777;
  yield entryHead({ type, name, linkName, mode, sizeBytes, modifiedSeconds: stats.mtimeMs / 1000 });
  if (sizeBytes === 0) return;
  yield* localContent(path, sizeBytes, progress);
  yield entryEnd(sizeBytes);
}

/**
 * Copies files with large holes one by one: an archive would carry every zero, and not every tar makes holes of them. This
 * comes before the archive, which then sets modes and times of the folders. Returns the names, their bytes read as latin1.
 */
async function uploadSparse(parts: CopyParts, local: string, remote: string): Promise<ReadonlySet<string>> {
  const names = new Set<string>();
  for await (const { name, path, stats } of localTree(local)) {
    if (!stats.isFile() || holeBytes(stats) < WORTHWHILE_HOLE_BYTES || !isUtf8(name)) continue;
    await uploadFile({ ...parts, makesParents: true }, path, stats, posix.join(remote, name.toString()), remote);
    names.add(name.toString("latin1"));
  }
  return names;
}

async function uploadFiles(parts: CopyParts, local: string, remote: string): Promise<void> {
  const { report } = parts;
  const folder = await existingFolder(parts.client, remote);
  const emptyDirectories = new Map<string, LocalEntry>();
  for await (const entry of localTree(local)) {
    const name = entry.name.toString();
    const path = entry.path.toString();
    const parent = posix.dirname(name);
    if (name !== "") emptyDirectories.delete(parent === "." ? "" : parent);
    if (entry.stats.isDirectory()) {
      emptyDirectories.set(name, entry);
    } else if (!isUtf8(entry.name)) {
      report.skip(path, NEEDS_UTF8);
    } else if (entry.stats.isFile()) {
      const target = posix.join(remote, name);
      await uploadFile({ ...parts, makesParents: true }, entry.path, entry.stats, target, folder);
    } else {
      report.skip(path, entry.stats.isSymbolicLink() ? NEEDS_TAR : NOT_COPIED);
    }
  }
  for (const { path } of emptyDirectories.values()) report.skip(path.toString(), NEEDS_TAR);
}

/** The destination, or the nearest folder above it that exists. */
async function existingFolder(client: GuestClient, remote: string): Promise<string> {
  let folder = remote;
  while (folder !== "/" && (await statIfThere(client, folder)) === undefined) folder = posix.dirname(folder);
  return folder;
}
