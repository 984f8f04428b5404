import { type Stats, statSync } from "node:fs";
import { fileContent, localEntry, localTree, TarError, unpack, UnpackError, withRoot } from "../../tar/index.ts";
import { FileType } from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { checkOptions } from "../arguments.ts";
import { failure, GuestError, isLost } from "../errors.ts";
import type { Names } from "../options.ts";
import type { FolderClient, ListOptions } from "./tree.ts";
import type { GuestPath } from "./path.ts";
import type { ReadTreeOptions } from "./read-tree.ts";
import { timeOfSeconds, type TreeEntry } from "./tree-entry.ts";
import { sourceFailure } from "./write.ts";
import { WRITE_TREE, type WriteTreeOptions } from "./write-tree.ts";

/** What of a folder was copied. */
export interface FolderCopy {
  readonly files: number;
  readonly bytes: number;
  /** Paths that were left out, from the folder on: devices, FIFOs and sockets, and what could not be read in the guest. */
  readonly skipped: readonly string[];
}

const NONE = Buffer.alloc(0);

/** Tries after a lost connection; a standby with its restore loses several. How long each waits for the agent. */
const RESUMES = 10;
const REACH_TIMEOUT_MS = 30_000;
/** Large files' times are floating-point numbers on their way to the guest's kernel. */
const SAME_WITHIN_NS = 2_000;

/** Options of `uploadFolder`, which always rejects at the first entry that fails. */
export type UploadFolderOptions = Omit<WriteTreeOptions, "failFast">;

const { failFast: _, ...UPLOAD }: Names<WriteTreeOptions> = WRITE_TREE;

/**
 * Copies a folder of this machine into the guest: GuestClient.uploadFolder. After a lost connection it goes on with
 * what is not there yet: what has its name in the guest is whole, and has its time.
 */
export async function uploadFolder(
  client: FolderClient,
  local: string,
  path: GuestPath,
  options: UploadFolderOptions,
): Promise<FolderCopy> {
  checkOptions("the options of uploadFolder", options, UPLOAD);
  const root = rootOf(local);
  const { beneath, noSymlinks, signal } = options;
  const place = { beneath, noSymlinks, signal };
  for (let resumes = 0; ; resumes += 1) {
    const done = { files: 0, bytes: 0, skipped: [] as string[] };
    let isBegun = false;
    const onProgress: UploadFolderOptions["onProgress"] = (progress) => {
      isBegun = true;
      options.onProgress?.(progress);
    };
    try {
      const reach = { ...place, waitForReady: true, timeoutMs: REACH_TIMEOUT_MS };
      const isThere = resumes === 0 ? () => false : await filesThere(client, path, reach);
      const entries = localEntries(local, done, isThere);
      await client.writeTree(path, entries, { parents: true, overwrite: true, ...options, failFast: true, onProgress });
      await client.setAttributes(path, { mode: root.mode & 0o777, mtime: root.mtime }, place);
      return done;
    } catch (error) {
      const isAway = error instanceof GuestError && error.status === "DEADLINE_EXCEEDED" && resumes > 0 && !isBegun;
      if (!(isLost(error) || isAway) || !(isBegun || resumes > 0) || resumes === RESUMES) throw error;
    }
  }
}

/** Before anything is made in the guest. */
function rootOf(local: string): Stats {
  try {
    return statSync(local);
  } catch (error) {
    throw sourceFailure("the entries", error);
  }
}

/** Whether the guest has a file of that name, size and time. */
type IsThere = (name: Buffer, size: number, mtimeSeconds: number) => boolean;

async function filesThere(client: FolderClient, path: GuestPath, options: ListOptions): Promise<IsThere> {
  const there = new Map<string, readonly [size: number, ms: number, nanos: number]>();
  for await (const { rawName, type, attributes } of client.list(path, {
    ...options,
    depth: Number.POSITIVE_INFINITY,
    crossMounts: true,
  }))
    if (type === FileType.REGULAR && attributes?.mtime !== undefined)
      there.set(rawName.toString("latin1"), [attributes.size, attributes.mtime.getTime(), attributes.mtimeNanos]);
  return (name, size, mtimeSeconds) => {
    const [sizeThere, ms = 0, nanos = 0] = there.get(name.toString("latin1")) ?? [];
    const { seconds, nanos: nanosHere } = timeOfSeconds(mtimeSeconds);
    const apartNs = (Math.floor(ms / 1_000) - seconds) * 1e9 + nanos - nanosHere;
    return sizeThere === size && Math.abs(apartNs) <= SAME_WITHIN_NS;
  };
}

/** All below a folder that the guest has not. */
function* localEntries(
  folder: string,
  done: { files: number; bytes: number; readonly skipped: string[] },
  isThere: IsThere,
): Generator<TreeEntry> {
  for (const local of localTree(folder)) {
    const { name } = local;
    const entry = localEntry(local, { shorter });
    if (entry === undefined) done.skipped.push(name.toString());
    else if (name.length > 0) {
      const { type, size, mtimeSeconds } = entry;
      if (type !== "file" || !isThere(name, size, mtimeSeconds)) yield entry;
      if (type === "file") done.files += 1;
      done.bytes += size;
    }
  }
}

function shorter(name: Buffer): GuestError {
  return failure("ABORTED", "FILE_CHANGED", `${name.toString()} became shorter while it was being copied`);
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
  const nothing = { name: NONE, linkTarget: NONE, size: 0, content: fileContent(NONE, 0) };
  const root = { ...nothing, type: "directory", mode, mtimeSeconds: (mtime?.getTime() ?? 0) / 1_000 } as const;
  // The folder itself first, but only once the agent has it open.
  const entries = withRoot<TreeEntry>(() => root, tree, { shorter });
  const copied = await unpack(local, entries).catch((error: unknown) => {
    if (error instanceof TarError) throw failure("DATA_LOSS", "ANSWER_UNREADABLE", error.message);
    if (!(error instanceof UnpackError)) throw error;
    throw failure("CANCELLED", "DESTINATION_FAILED", error.message, error.cause);
  });
  return { ...copied, skipped: tree.result?.failures.map(({ name }) => name) ?? [] };
}
