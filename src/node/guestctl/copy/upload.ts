import { createHash } from "node:crypto";
import type { Stats } from "node:fs";
import { posix } from "node:path";
import {
  type GuestClient,
  GuestError,
  type GuestPath,
  type TreeEntry as GuestTreeEntry,
  type LeftEntry,
} from "../../client/index.ts";
import { fileContent, hasHoles, localEntry, readTar, type TarEntry } from "../../tar/index.ts";
import { CliError } from "../cli/index.ts";
import { existingFolder, isReason, statIfThere } from "./guest-paths.ts";
import { localContent, locallyAll } from "./local-tree.ts";
import { type CopyContext, type CopyParts, NOT_COPIED } from "./report.ts";

/** Files that are written at once: each waits for the sandbox's disk. */
const AT_ONCE = 16;
const SLASH = Buffer.from("/");
const HERE = Buffer.from(".");

/** A file to upload, from a disk or an archive. */
interface FileParts {
  readonly sizeBytes: number;
  readonly mode: number;
  readonly modifiedSeconds: number;
  readonly sparse: boolean;
  readonly makesParents: boolean;
}

/**
 * Copies a file into the sandbox, with its mode, its time and its holes, and compares the checksums of both ends.
 *
 * @param folder the folder that the person named, if the file lies below it: the agent follows no link out of it, which
 *   the workload may have made
 */
export async function uploadFile(
  parts: CopyParts,
  local: string | Buffer,
  stats: Stats,
  remote: string,
  folder?: string,
): Promise<void> {
  const path = folder === undefined ? remote : posix.relative(folder, remote);
  const { size: sizeBytes, mode, mtimeMs } = stats;
  const file = { path: local, sizeBytes };
  const content = localContent(fileContent(local, sizeBytes), file, (count) => parts.progress.add(count));
  const { makesParents } = parts;
  const how = { sizeBytes, mode, modifiedSeconds: mtimeMs / 1_000, sparse: hasHoles(stats), makesParents };
  await writeFile(parts, path, content, how, folder);
}

async function writeFile(
  { client, report }: CopyContext,
  path: GuestPath,
  content: AsyncIterable<Uint8Array>,
  { sizeBytes, mode, modifiedSeconds, sparse, makesParents }: FileParts,
  beneath = "",
): Promise<void> {
  const hash = createHash("sha256");
  async function* hashed(): AsyncGenerator<Uint8Array> {
    for await (const bytes of content) {
      hash.update(bytes);
      yield bytes;
    }
  }
  const file = {
    size: sizeBytes,
    mode: mode & 0o7777,
    ...timeOf(modifiedSeconds),
    sparse,
    parents: makesParents,
    beneath,
  };
  const { sha256 } = await client.writeFile(path, hashed(), file);
  if (!hash.digest().equals(sha256))
    throw new CliError(`${path.toString()} arrived with another checksum; copy it again`);
  report.files += 1;
  report.bytes += sizeBytes;
}

function timeOf(time: number): { readonly mtime: Date; readonly mtimeNanos: number } {
  const seconds = Math.floor(time);
  return { mtime: new Date(seconds * 1_000), mtimeNanos: Math.floor((time - seconds) * 1_000_000) * 1_000 };
}

/** Copies a folder into the sandbox, with modes, times and links, whatever programs the image has. */
export async function uploadTree(parts: CopyParts, local: string, remote: string, folder?: string): Promise<void> {
  const { client, makesParents } = parts;
  if (!makesParents && (await statIfThere(client, posix.dirname(remote))) === undefined) {
    throw new CliError(`cannot make ${remote} in the sandbox: its folder does not exist; --parents makes it`);
  }
  const beneath = folder ?? (await existingFolder(client, posix.dirname(remote)));
  await fill(parts, { beneath, top: posix.relative(beneath, remote) }, localEntries(parts, local), AT_ONCE);
}

/** Unpacks a tar archive into a folder of the sandbox. */
export async function tarIn(context: CopyContext, remote: string, input: AsyncIterable<Uint8Array>): Promise<void> {
  if ((await statIfThere(context.client, remote)) === undefined)
    throw new CliError(`there is no folder ${remote} in the sandbox; guestctl mkdir -p ${remote} makes it`);
  // An entry's content is in the stream: it has to be written before the next.
  await fill(context, { beneath: remote, top: "" }, readTar(input), 1);
}

/** A folder of the sandbox, and the one above it that nothing leaves; `top` is the way from that to the folder. */
interface Destination {
  readonly beneath: string;
  readonly top: string;
}

/** Writes entries in one stream; file by file, some at once, to an agent that has no such call. */
async function fill(
  context: CopyContext,
  { beneath, top }: Destination,
  entries: AsyncIterable<TreeEntry>,
  atOnce: number,
): Promise<void> {
  const { client } = context;
  const root: { entry?: TreeEntry } = {};
  const options = { parents: true, overwrite: true, specialBits: true };
  const items = itemsOf(context, entries, root);
  try {
    const { failed, failures } =
      top === ""
        ? await client.writeTree(beneath, items, options)
        : await client.writeTree(top, items, { ...options, beneath });
    if (failed > 0) throw notWritten(failed, failures);
  } catch (error) {
    if (!(error instanceof GuestError) || error.status !== "UNIMPLEMENTED") throw error;
    await new GuestTarget(context, beneath, Buffer.from(top)).fill(entries, atOnce);
    return;
  }
  if (root.entry === undefined) return;
  const { mode, modifiedSeconds } = root.entry;
  await client.setAttributes(
    top || ".",
    { mode: mode & 0o7777, mtime: new Date(modifiedSeconds * 1_000) },
    { beneath },
  );
}

/** The entries as a tree has them. Counts them, and skips what the sandbox does not take. */
async function* itemsOf(
  { report }: CopyContext,
  entries: AsyncIterable<TreeEntry>,
  root: { entry?: TreeEntry },
): AsyncGenerator<GuestTreeEntry> {
  for await (const entry of entries) {
    const { type, sizeBytes } = entry;
    const name = plainPath(entry.name);
    if (name.length === 0) root.entry = entry;
    else if (type === "directory" || type === "symlink") yield { ...entry, type, name };
    else if (type !== "file" && type !== "hard-link") report.skip(entry.name.toString(), NOT_COPIED);
    else {
      yield { ...entry, type, name, linkName: type === "hard-link" ? plainPath(entry.linkName) : entry.linkName };
      report.files += 1;
      report.bytes += type === "file" ? sizeBytes : 0;
    }
  }
}

/** A path of an archive without the slashes and dots that it may begin and end with. */
function plainPath(path: Buffer): Buffer {
  const names = path.toString("latin1").split("/");
  return Buffer.from(names.filter((name) => name !== "" && name !== ".").join("/"), "latin1");
}

function notWritten(failed: number, failures: readonly LeftEntry[]): CliError {
  const first = failures.slice(0, 3).map(({ name, errno }) => `${name}: ${errno}`);
  const more = failed > first.length ? `, and ${failed - first.length} more` : "";
  return new CliError(`not written in the sandbox: ${first.join("; ")}${more}; the rest is there`);
}

async function* localEntries({ report, progress }: CopyParts, local: string): AsyncGenerator<TreeEntry> {
  for (const each of locallyAll(local)) {
    const { path, stats } = each;
    const file = { path, sizeBytes: stats.isFile() ? stats.size : 0 };
    const entry = localEntry(each, (content) => localContent(content, file, (bytes) => progress.add(bytes)));
    if (entry === undefined) report.skip(path.toString(), NOT_COPIED);
    else yield entry;
  }
}

/** An entry to upload: from this machine's disk, or from an archive, which does not show holes. */
type TreeEntry = TarEntry & { readonly sparse?: boolean };

/** A folder of the sandbox that is being filled. Nothing leaves the folder above it, not even over a link. */
class GuestTarget {
  readonly #context: CopyContext;
  readonly #client: GuestClient;
  readonly #beneath: string;
  readonly #top: Buffer;
  /** Modes and times for the end: writing into a folder changes its time, and its mode may forbid it. */
  readonly #folders: { readonly path: Buffer; readonly mode: number; readonly mtime: Date }[] = [];

  constructor(context: CopyContext, beneath: string, top: Buffer) {
    this.#context = context;
    this.#client = context.client;
    this.#beneath = beneath;
    this.#top = top;
  }

  /** Creates all entries, several files at once. */
  async fill(entries: AsyncIterable<TreeEntry>, atOnce: number): Promise<void> {
    const writing = new Set<Promise<void>>();
    let failure: { readonly error: unknown } | undefined;
    for await (const entry of entries) {
      // Folders and links are complete before the next entry, which may lie in the one or have the name of the other.
      const made = this.#add(entry).catch((error: unknown) => {
        failure ??= { error };
      });
      writing.add(made);
      void made.then(() => writing.delete(made));
      if (entry.type !== "file" || writing.size >= atOnce) await (entry.type === "file" ? Promise.race(writing) : made);
      if (failure !== undefined) break;
    }
    await Promise.all(writing);
    if (failure !== undefined) throw failure.error;
    for (const { path, ...attributes } of this.#folders.toReversed())
      await this.#client.setAttributes(path, attributes, { beneath: this.#beneath });
  }

  async #add(entry: TreeEntry): Promise<void> {
    const { type, name, linkName, mode, modifiedSeconds, content, sizeBytes, sparse = false } = entry;
    const path = this.#pathOf(name);
    const beneath = this.#beneath;
    if (type === "directory") {
      if (!path.equals(HERE)) await this.#client.mkdir(path, { beneath, parents: true, mode: (mode & 0o7777) | 0o700 });
      this.#folders.push({ path, mode: mode & 0o7777, mtime: new Date(modifiedSeconds * 1_000) });
    } else if (type === "file") {
      const file = { sizeBytes, mode, modifiedSeconds, sparse, makesParents: true };
      await writeFile(this.#context, path, content, file, beneath);
    } else if (type === "symlink") await this.#link(path, linkName);
    else if (type === "hard-link") {
      const source = this.#client.readFile(this.#pathOf(linkName), { beneath });
      await this.#client.writeFile(path, source, { beneath, mode: mode & 0o7777, ...timeOf(modifiedSeconds) });
      this.#context.report.files += 1;
    } else this.#context.report.skip(name.toString(), NOT_COPIED);
  }

  /** Replaces whatever is there, as tar(1) does. */
  async #link(path: Buffer, target: Buffer): Promise<void> {
    const beneath = this.#beneath;
    const make = (): Promise<void> => this.#client.symlink(target, path, { beneath });
    await make().catch(async (error: unknown) => {
      if (isReason(error, "PATH_NOT_FOUND")) {
        await this.#client.mkdir(path.subarray(0, path.lastIndexOf(SLASH)), { beneath, parents: true });
      } else if (isReason(error, "ALREADY_EXISTS")) await this.#client.remove(path, { beneath });
      else throw error;
      await make();
    });
  }

  /** The path beneath the folder that nothing leaves. */
  #pathOf(name: Buffer): Buffer {
    const [first = HERE, second] = [this.#top, plainPath(name)].filter((part) => part.length > 0);
    return second === undefined ? first : Buffer.concat([first, SLASH, second]);
  }
}
