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
import { type LocalTarEntry, localEntry, readTar, type TarEntry, type Watch } from "../../tar/index.ts";
import { CliError } from "../cli/index.ts";
import { existingFolder, isReason, statIfThere } from "./guest-paths.ts";
import { LOCAL, locallyAll } from "./local-tree.ts";
import { type CopyContext, type CopyParts, NOT_COPIED } from "./report.ts";

/** Files that are written at once: each waits for the sandbox's disk. */
const AT_ONCE = 16;
const SLASH = Buffer.from("/");
const NONE = Buffer.alloc(0);
const HERE = Buffer.from(".");

/**
 * Copies a file into the sandbox, with its mode, its time and its holes, and compares the checksums of both ends.
 *
 * @param folder the folder that the person named, if the file lies below it: the agent follows no link out of it, which
 *   the workload may have made
 */
export async function uploadFile(
  parts: CopyParts,
  local: string,
  stats: Stats,
  remote: string,
  folder?: string,
): Promise<void> {
  const path = folder === undefined ? remote : posix.relative(folder, remote);
  const file = localEntry({ name: NONE, path: Buffer.from(local), stats }, watchOf(parts));
  if (file !== undefined) await writeFile(parts, path, file, parts.makesParents, folder);
}

function watchOf({ progress }: CopyParts): Watch {
  return { ...LOCAL, onBytes: (bytes) => progress.add(bytes) };
}

async function writeFile(
  { client, report }: CopyContext,
  path: GuestPath,
  { content, size, mode, mtimeSeconds, sparse = false }: TreeEntry,
  parents: boolean,
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
    size,
    mode: mode & 0o7777,
    ...timeOf(mtimeSeconds),
    sparse,
    parents,
    beneath,
  };
  const { sha256 } = await client.writeFile(path, hashed(), file);
  if (!hash.digest().equals(sha256))
    throw new CliError(`${path.toString()} arrived with another checksum; copy it again`);
  report.files += 1;
  report.bytes += size;
}

function timeOf(time: number): { readonly mtime: Date; readonly mtimeNanos: number } {
  const seconds = Math.floor(time);
  return { mtime: new Date(seconds * 1_000), mtimeNanos: Math.floor((time - seconds) * 1_000_000) * 1_000 };
}

/** Copies a folder into the sandbox, with modes, times and links, whatever programs the image has. */
export async function uploadTree(parts: CopyParts, local: string, remote: string, folder?: string): Promise<void> {
  const { client, makesParents } = parts;
  const above = posix.dirname(remote);
  const beneath = folder ?? (await existingFolder(client, above));
  if (!makesParents && folder === undefined && beneath !== above)
    throw new CliError(`cannot make ${remote} in the sandbox: its folder does not exist; --parents makes it`);
  await fill(parts, { beneath, top: posix.relative(beneath, remote) }, localEntries(parts, local), AT_ONCE);
}

/** Unpacks a tar archive into a folder of the sandbox. */
export async function tarIn(context: CopyContext, remote: string, input: AsyncIterable<Uint8Array>): Promise<void> {
  if ((await statIfThere(context.client, remote)) === undefined)
    throw new CliError(`there is no folder ${remote} in the sandbox; guestctl mkdir -p ${remote} makes it`);
  // An entry's content is in the stream: it has to be written before the next.
  await fill(context, { beneath: remote, top: "" }, archived(input), 1);
}

/** The entries of an archive without the slashes and dots that their paths may begin and end with. */
async function* archived(input: AsyncIterable<Uint8Array>): AsyncGenerator<TreeEntry> {
  for await (const entry of readTar(input)) {
    const linkTarget = entry.type === "hard-link" ? plainPath(entry.linkTarget) : entry.linkTarget;
    yield { ...entry, name: plainPath(entry.name), linkTarget };
  }
}

function plainPath(path: Buffer): Buffer {
  const names = path.toString("latin1").split("/");
  return Buffer.from(names.filter((name) => name !== "" && name !== ".").join("/"), "latin1");
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
  entries: Iterable<TreeEntry> | AsyncIterable<TreeEntry>,
  atOnce: number,
): Promise<void> {
  const { client } = context;
  let root: TreeEntry | undefined;
  const options = { parents: true, overwrite: true, specialBits: true };
  const items = chosen(entries, (entry): entry is TakenEntry => {
    if (entry.name.length === 0) root = entry;
    return entry.name.length > 0 && isTaken(context, entry);
  });
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
  if (root === undefined) return;
  const { mode, mtimeSeconds } = root;
  await client.setAttributes(top || ".", { mode: mode & 0o7777, mtime: new Date(mtimeSeconds * 1_000) }, { beneath });
}

type TakenEntry = TreeEntry & Pick<GuestTreeEntry, "type">;

/** Whether the sandbox takes it. Counts it, or tells that it is skipped. */
function isTaken({ report }: CopyContext, entry: TreeEntry): entry is TakenEntry {
  const { type, size, name } = entry;
  if (type === "directory" || type === "symlink") return true;
  if (type !== "file" && type !== "hard-link") report.skip(name.toString(), NOT_COPIED);
  else {
    report.files += 1;
    report.bytes += type === "file" ? size : 0;
  }
  return type === "file" || type === "hard-link";
}

/** Those of the entries, as they come: many local files at once would only wait for each other. */
function chosen<Entry, Chosen extends Entry>(
  entries: Iterable<Entry> | AsyncIterable<Entry>,
  isChosen: (entry: Entry) => entry is Chosen,
): Iterable<Chosen> | AsyncIterable<Chosen> {
  return Symbol.iterator in entries ? now(entries) : later(entries);
  function* now(some: Iterable<Entry>): Generator<Chosen> {
    for (const entry of some) if (isChosen(entry)) yield entry;
  }
  async function* later(some: AsyncIterable<Entry>): AsyncGenerator<Chosen> {
    for await (const entry of some) if (isChosen(entry)) yield entry;
  }
}

function notWritten(failed: number, failures: readonly LeftEntry[]): CliError {
  const first = failures.slice(0, 3).map(({ name, errno }) => `${name}: ${errno}`);
  const more = failed > first.length ? `, and ${failed - first.length} more` : "";
  return new CliError(`not written in the sandbox: ${first.join("; ")}${more}; the rest is there`);
}

function* localEntries(parts: CopyParts, local: string): Generator<LocalTarEntry> {
  const watch = watchOf(parts);
  for (const each of locallyAll(local)) {
    const entry = localEntry(each, watch);
    if (entry === undefined) parts.report.skip(each.path.toString(), NOT_COPIED);
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
  async fill(entries: Iterable<TreeEntry> | AsyncIterable<TreeEntry>, atOnce: number): Promise<void> {
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
    const { type, name, linkTarget, mode, mtimeSeconds } = entry;
    const path = this.#pathOf(name);
    const beneath = this.#beneath;
    if (type === "directory") {
      if (!path.equals(HERE)) await this.#client.mkdir(path, { beneath, parents: true, mode: (mode & 0o7777) | 0o700 });
      this.#folders.push({ path, mode: mode & 0o7777, mtime: new Date(mtimeSeconds * 1_000) });
    } else if (type === "file") await writeFile(this.#context, path, entry, true, beneath);
    else if (type === "symlink") await this.#link(path, linkTarget);
    else if (type === "hard-link") {
      const source = this.#client.readFile(this.#pathOf(linkTarget), { beneath });
      await this.#client.writeFile(path, source, { beneath, mode: mode & 0o7777, ...timeOf(mtimeSeconds) });
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
    const [first = HERE, second] = [this.#top, name].filter((part) => part.length > 0);
    return second === undefined ? first : Buffer.concat([first, SLASH, second]);
  }
}
