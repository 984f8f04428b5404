import { lstatSync, readdirSync, readlinkSync, type Stats, statSync } from "node:fs";
import { fileContent, isHole, type Piece, sparseContent, unpack } from "../../tar/index.ts";
import { FileType } from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { failure, isLost } from "../errors.ts";
import type { FolderClient, ListOptions } from "./tree.ts";
import type { GuestPath } from "./path.ts";
import type { ReadTreeOptions } from "./read-tree.ts";
import { timeOfSeconds, type TreeEntry } from "./tree-entry.ts";
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

/** Tries after a lost connection; a standby with its restore loses several. How long each waits for the agent. */
const RESUMES = 10;
const REACH_TIMEOUT_MS = 30_000;
/** More than any tree has levels. */
const ALL_LEVELS = 2 ** 32 - 1;
/** Large files' times are floating-point numbers on their way to the guest's kernel. */
const SAME_WITHIN_NS = 2_000;

/**
 * Copies a folder of this machine into the guest: GuestClient.uploadFolder. After a lost connection it goes on with
 * what is not there yet: what has its name in the guest is whole, and has its time.
 */
export async function uploadFolder(
  client: FolderClient,
  local: string,
  path: GuestPath,
  options: WriteTreeOptions,
): Promise<FolderCopy> {
  const root = statSync(local);
  const { beneath, noSymlinks, signal } = options;
  const place = { beneath, noSymlinks, signal };
  for (let resumes = 0; ; resumes += 1) {
    const done = { files: 0, bytes: 0, skipped: [] as string[] };
    let isBegun = false;
    const onProgress: WriteTreeOptions["onProgress"] = (progress) => {
      isBegun = true;
      options.onProgress?.(progress);
    };
    try {
      const reach = { ...place, waitForReady: true, timeoutMs: REACH_TIMEOUT_MS };
      const isThere = resumes === 0 ? () => false : await filesThere(client, path, reach);
      const entries = localEntries(Buffer.from(local), NONE, done, isThere);
      await client.writeTree(path, entries, { parents: true, overwrite: true, failFast: true, ...options, onProgress });
      await client.setAttributes(path, { mode: root.mode & 0o777, mtime: root.mtime }, place);
      return done;
    } catch (error) {
      const isAway = error instanceof GuestError && error.status === "DEADLINE_EXCEEDED" && resumes > 0 && !isBegun;
      if (!(isLost(error) || isAway) || !(isBegun || resumes > 0) || resumes === RESUMES) throw error;
    }
  }
}

/** Whether the guest has a file of that name, size and time. */
type IsThere = (name: Buffer, size: number, modifiedSeconds: number) => boolean;

async function filesThere(client: FolderClient, path: GuestPath, options: ListOptions): Promise<IsThere> {
  const there = new Map<string, readonly [size: number, ms: number, nanos: number]>();
  for await (const { rawName, type, attributes } of client.list(path, {
    ...options,
    depth: ALL_LEVELS,
    crossMounts: true,
  }))
    if (type === FileType.REGULAR && attributes?.mtime !== undefined)
      there.set(rawName.toString("latin1"), [attributes.size, attributes.mtime.getTime(), attributes.mtimeNanos]);
  return (name, size, modifiedSeconds) => {
    const [sizeThere, ms = 0, nanos = 0] = there.get(name.toString("latin1")) ?? [];
    const { seconds, nanos: nanosHere } = timeOfSeconds(modifiedSeconds);
    const apartNs = (Math.floor(ms / 1_000) - seconds) * 1e9 + nanos - nanosHere;
    return sizeThere === size && Math.abs(apartNs) <= SAME_WITHIN_NS;
  };
}

/** All below a folder, by name, folders before what is in them. Follows no link. */
async function* localEntries(
  folder: Buffer,
  above: Buffer,
  done: { files: number; bytes: number; readonly skipped: string[] },
  isThere: IsThere,
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
      content: fileContent(path, 0),
    };
    if (stats.isDirectory()) {
      yield { ...head, type: "directory" };
      yield* localEntries(path, name, done, isThere);
    } else if (stats.isSymbolicLink())
      yield { ...head, type: "symlink", linkName: readlinkSync(path, { encoding: "buffer" }) };
    else if (stats.isFile()) {
      const sparse = hasHoles(stats);
      if (!isThere(name, size, head.modifiedSeconds))
        yield {
          ...head,
          type: "file",
          sizeBytes: size,
          sparse,
          content: whole(path, size, fileContent(path, size)),
          pieces: sparse ? whole(path, size, sparseContent(path, size)) : undefined,
        };
      done.files += 1;
      done.bytes += size;
    } else done.skipped.push(name.toString());
  }
}

function hasHoles({ blocks, size }: Stats): boolean {
  return blocks * 512 < size;
}

/** Throws where a file has become shorter: a part is not to be taken for the whole. */
async function* whole<Part extends Piece>(
  name: Buffer,
  sizeBytes: number,
  content: AsyncIterable<Part>,
): AsyncGenerator<Part> {
  let read = 0;
  for await (const piece of content) {
    read += isHole(piece) ? piece.holeBytes : piece.length;
    yield piece;
  }
  const message = `${name.toString()} became shorter while it was being copied`;
  if (read < sizeBytes) throw failure("ABORTED", "FILE_CHANGED", message);
}

/** Options of `downloadFolder`. */
export type DownloadFolderOptions = Pick<ReadTreeOptions, "crossMounts" | "signal" | "timeoutMs">;

/**
 * Copies a folder of the guest to this machine: GuestClient.downloadFolder.
 *
 * @param mode of the folder itself, and `mtime` its time
 */
export async function downloadFolder(
  client: FolderClient,
  { path, mode, mtime }: { readonly path: GuestPath; readonly mode: number; readonly mtime?: Date | undefined },
  local: string,
  options: DownloadFolderOptions,
): Promise<FolderCopy> {
  const tree = client.readTree(path, { crossMounts: true, ...options });
  async function* entries(): AsyncGenerator<TreeEntry> {
    const nothing = { name: NONE, linkName: NONE, sizeBytes: 0, content: fileContent(NONE, 0) };
    const root = { ...nothing, type: "directory", mode, modifiedSeconds: (mtime?.getTime() ?? 0) / 1_000 } as const;
    let isBegun = false;
    // The folder itself first, but only once the agent has it open.
    for await (const entry of tree) {
      if (!isBegun) yield root;
      isBegun = true;
      yield { ...entry, pieces: whole(entry.name, entry.sizeBytes, entry.pieces ?? entry.content) };
    }
    if (!isBegun) yield root;
  }
  const copied = await unpack(local, entries());
  return { ...copied, skipped: tree.result?.failures.map(({ name }) => name) ?? [] };
}
