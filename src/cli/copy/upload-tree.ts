import { posix } from "node:path";
import { type GuestClient, GuestError } from "../../client/index.ts";
import { startIfThere } from "./guest-command.ts";
import { type LocalEntry, localTree } from "./local-tree.ts";
import { TAR_END, tarEntry, tarTypeOf } from "./tar-write.ts";
import { type CopyParts, uploadFile } from "./upload.ts";

const NOT_COPIED = "neither a file, a directory nor a link";
const NEEDS_TAR = "the image has no tar to make it with";

/**
 * Copies a directory into the sandbox: as one tar stream where the image has tar (and mkdir), else file by file, which
 * can make neither links nor empty directories.
 */
export async function uploadTree(parts: CopyParts, local: string, remote: string): Promise<void> {
  if (await uploadTar(parts, local, remote)) return;
  await uploadFiles(parts, local, remote);
}

async function uploadTar({ client, progress, report }: CopyParts, local: string, remote: string): Promise<boolean> {
  // Looked for first: a directory should not be made for a copy that is then made otherwise.
  const probe = await startIfThere(client, ["tar", "--help"]);
  if (probe === undefined) return false;
  probe.stdout.resume();
  await probe.wait().catch(() => undefined);
  const mkdir = await startIfThere(client, ["mkdir", "-p", "--", remote]);
  if (mkdir === undefined) return false;
  mkdir.stdout.resume();
  await mkdir.wait();
  const tar = await startIfThere(client, ["tar", "-xpof", "-"], { cwd: remote, stdin: true });
  if (tar === undefined) return false;
  async function* archive(): AsyncGenerator<Buffer> {
    for await (const entry of localTree(local)) {
      const type = tarTypeOf(entry);
      if (type === undefined) {
        report.skip(entry.path, NOT_COPIED);
        continue;
      }
      for await (const bytes of tarEntry(entry, type)) {
        progress.add(bytes.length);
        yield bytes;
      }
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

async function uploadFiles(parts: CopyParts, local: string, remote: string): Promise<void> {
  const { report } = parts;
  const folder = await existingFolder(parts.client, remote);
  const emptyDirectories = new Map<string, LocalEntry>();
  for await (const entry of localTree(local)) {
    const parent = posix.dirname(entry.name);
    if (entry.name !== "") emptyDirectories.delete(parent === "." ? "" : parent);
    if (entry.stats.isDirectory()) {
      emptyDirectories.set(entry.name, entry);
    } else if (entry.stats.isFile()) {
      const target = posix.join(remote, entry.name);
      await uploadFile({ ...parts, makesParents: true }, entry.path, entry.stats, target, folder);
    } else {
      report.skip(entry.path, entry.stats.isSymbolicLink() ? NEEDS_TAR : NOT_COPIED);
    }
  }
  for (const { path } of emptyDirectories.values()) report.skip(path, NEEDS_TAR);
}

/** The destination, or the nearest folder above it that is there. */
async function existingFolder(client: GuestClient, remote: string): Promise<string> {
  for (let folder = remote; ; folder = posix.dirname(folder)) {
    try {
      await client.statPath(folder);
      return folder;
    } catch (error) {
      if (folder === "/" || !(error instanceof GuestError) || error.reason !== "PATH_NOT_FOUND") throw error;
    }
  }
}
