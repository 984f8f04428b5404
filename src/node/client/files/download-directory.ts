import { Readable } from "node:stream";
import {
  EntryError,
  secondsNotBefore,
  TarError,
  type TarEntry,
  unpack,
  UnpackError,
  type UnpackOptions,
  withoutExcluded,
  withRoot,
} from "../../tar/index.ts";
import { checkOptions } from "../arguments.ts";
import type { CallOptions, Channel } from "../grpc/channel.ts";
import { failure, GuestError, isLost } from "../errors/errors.ts";
import { CopyFilter } from "./copy-filter.ts";
import { CopyEnd } from "./copy-end.ts";
import {
  type DownloadOptions,
  DOWNLOAD,
  type DirectoryCopy,
  type LocalPath,
  localBytes,
  ownersOf,
  umaskOf,
  REACH_TIMEOUT_MS,
  RESUMES,
} from "./directory-copy.ts";
import { TimeLimit } from "../time-limit.ts";
import { entryErrno, guestFile, joined, nanosecondsOf } from "./guest-file.ts";
import { LeftOut } from "./left-out.ts";
import { type GuestPath, pathBytes } from "./path.ts";
import type { CopyCalls } from "./copy-calls.ts";
import { ArchiveReading } from "./read-tree.ts";
import type { ArchiveEntry, LeftEntry } from "./tree-entry.ts";

const NONE = Buffer.alloc(0);

/** The guest's directory to copy, and the functions that call the agent. */
export interface DownloadSource {
  readonly files: CopyCalls;
  readonly channel: Channel;
  readonly path: GuestPath;
}

/**
 * Implements Files.download. After a lost connection, the download starts over: the guest may have been rolled back to
 * a snapshot, in which a file with the same name, size and time has other content.
 */
export async function downloadDirectory(
  source: DownloadSource,
  local: LocalPath,
  options: DownloadOptions,
): Promise<DirectoryCopy> {
  checkOptions("the options of download()", options, DOWNLOAD);
  const limit = new TimeLimit(options.requestTimeoutMs);
  const left = new LeftOut(options.onFailure);
  let isBegun = false;
  const made = new Set<string>();
  for (let resumes = 0; ; resumes += 1)
    try {
      if (resumes > 0) await reached(source, options, limit);
      const copied = await attempt(source, local, options, { limit, left, made, onBegun: () => (isBegun = true) });
      left.check(copied);
      return { ...copied, skipped: left.skipped };
    } catch (error) {
      if (!(error instanceof GuestError) || resumes === RESUMES || limit.isOver || !isBegun) throw error;
      // A reconnect has a shorter time limit than the copy. If a reconnect exceeds its limit, the error is also
      // DEADLINE_EXCEEDED, and the copy may try again.
      const isAway = error.status === "DEADLINE_EXCEEDED" && resumes > 0;
      if (!isAway && !isLost(error)) throw error;
      options.onReconnect?.(error);
    }
}

/** Waits until the agent answers. */
async function reached(
  { files, path }: DownloadSource,
  { signal, beneath, noSymlinks }: DownloadOptions,
  limit: TimeLimit,
): Promise<void> {
  const reach = {
    signal,
    beneath,
    noSymlinks,
    waitForReady: true,
    requestTimeoutMs: limit.left(REACH_TIMEOUT_MS),
    maxEntries: 1,
  };
  for await (const _ of files.opendir(path, reach)) return;
}

interface Attempt {
  readonly limit: TimeLimit;
  readonly left: LeftOut;
  /**
   * With `keepExisting`: the directories that the copy has created. The copy sets the attributes only of these
   * directories.
   */
  readonly made: Set<string>;
  readonly onBegun: () => void;
}

async function attempt(
  { files, channel, path }: DownloadSource,
  local: LocalPath,
  options: DownloadOptions,
  { limit, left, made, onBegun }: Attempt,
): Promise<{ readonly files: number; readonly bytes: number }> {
  const { crossMounts = true, exclude = [], filter: given, failFast = false, onBytes, signal } = options;
  const umask = umaskOf(options);
  const { beneath, noSymlinks, waitForReady } = options;
  const place = { beneath, noSymlinks };
  const { hardLinks = false, followLinks = false, keepExisting = false } = options;
  const call = (): CallOptions => ({ signal, waitForReady, requestTimeoutMs: limit.left() });
  const top = Buffer.from(pathBytes(path));
  // Dispose of `end` even after a local failure, because that stops reading from the agent. Otherwise the copy would
  // wait for the agent's next message, and the agent may have nothing more to send.
  using end = new CopyEnd(signal, limit);
  const attributes = await files.stat(top, { ...call(), ...place });
  const fail = (failed: Pick<LeftEntry, "rawName" | "errno" | "local">): void => {
    left.add(failed);
    if (failFast) left.check();
  };
  const tree = new ArchiveReading(channel, path, {
    ...place,
    crossMounts,
    hardLinks,
    followLinks,
    ...call(),
    signal: end.signal,
    onFailure: fail,
  });
  const { mode, uid, gid } = attributes;
  const nothing = { name: NONE, linkTarget: NONE, size: 0, content: Readable.from([]) };
  const mtimeSeconds = secondsNotBefore(nanosecondsOf(attributes));
  const root = { ...nothing, type: "directory", mode, uid, gid, mtimeSeconds } as const;
  // Yield the root directory before its entries, but not before the agent has opened it.
  const begun = (): ArchiveEntry => {
    onBegun();
    return root;
  };
  const onFailure = (rawName: Buffer, error: EntryError): void =>
    fail({ rawName, errno: error.errno, ...(error instanceof UnpackError && { local: true }) });
  // Called for a hard link to a file that this download has not written, because the name that the link refers to was
  // excluded or failed.
  const missingFile = async ({ name }: TarEntry): Promise<TarEntry | undefined> => {
    try {
      const found = await files.lstat(joined(top, name), { ...call(), ...place });
      if (found.type !== "file") return undefined;
      // Do not follow symlinks: the owner of the directory could meanwhile replace the file by a symlink, whose target
      // the agent would read with the agent's privileges.
      const isBelow = typeof path === "string" && beneath === undefined;
      const within = isBelow ? { beneath: path, noSymlinks: true } : { beneath, noSymlinks: beneath !== undefined };
      const at = isBelow ? name : joined(top, name);
      return guestFile(files, at, name, found, () => ({ ...call(), ...within }));
    } catch (error) {
      if (entryErrno(error) === undefined) throw error;
      return undefined;
    }
  };
  const how: UnpackOptions = {
    ...ownersOf(options),
    signal: end.signal,
    umask,
    onFailure: failFast ? undefined : onFailure,
    keepExisting: keepExisting ? made : undefined,
    // Without `crossMounts`, the agent always sends hard links.
    missingFile: hardLinks || !crossMounts ? missingFile : undefined,
  };
  const others = withoutExcluded<ArchiveEntry>(tree, exclude);
  const filter = given && new CopyFilter(given);
  const chosen = filter === undefined ? others : filter.chosen(others);
  const copied = await unpack(localBytes(local), withRoot<ArchiveEntry>(begun, chosen, onBytes), how).catch(
    (error: unknown) => {
      throw filter?.failure === undefined ? guestErrorOf(error) : filter.failure.error;
    },
  );
  left.addUnnamed(tree.unnamed);
  return copied;
}

function guestErrorOf(error: unknown): unknown {
  if (error instanceof TarError) return failure("DATA_LOSS", "ANSWER_UNREADABLE", error.message);
  if (error instanceof UnpackError)
    return failure("FAILED_PRECONDITION", "DESTINATION_FAILED", error.message, error.cause);
  return error instanceof EntryError ? failure("ABORTED", "FILE_CHANGED", error.message, error) : error;
}
