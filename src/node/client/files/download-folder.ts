import {
  EntryError,
  fileContent,
  secondsNotBefore,
  TarError,
  unpack,
  UnpackError,
  type UnpackOptions,
  withoutExcluded,
  withRoot,
} from "../../tar/index.ts";
import { checkOptions } from "../arguments.ts";
import type { CallOptions } from "../channel.ts";
import { failure, GuestError, isLost } from "../errors.ts";
import type { PathAttributes } from "./attributes.ts";
import {
  type DownloadFolderOptions,
  DOWNLOAD,
  type FolderCopy,
  REACH_TIMEOUT_MS,
  RESUMES,
  TimeLimit,
} from "./folder.ts";
import { LeftOut } from "./left-out.ts";
import type { GuestPath } from "./path.ts";
import type { FolderClient } from "./tree.ts";
import type { LeftEntry, TreeEntry } from "./tree-entry.ts";

const NONE = Buffer.alloc(0);
const NS_PER_SECOND = 1_000_000_000n;

/** The guest's directory: its path, and a call for its attributes. */
export interface DownloadSource {
  readonly client: FolderClient;
  readonly path: GuestPath;
  readonly stat: (options: CallOptions) => Promise<Pick<PathAttributes, "mode" | "mtime" | "mtimeNanos">>;
}

/**
 * Copies a directory of the guest to this machine: GuestClient.downloadFolder. After a lost connection it begins again:
 * a guest that was rolled back meanwhile may have other content under the same names, sizes and times.
 */
export async function downloadFolder(
  source: DownloadSource,
  local: string,
  options: DownloadFolderOptions,
): Promise<FolderCopy> {
  checkOptions("the options of downloadFolder", options, DOWNLOAD);
  const limit = new TimeLimit(options.timeoutMs);
  const left = new LeftOut(options.onFailure);
  let isBegun = false;
  for (let resumes = 0; ; resumes += 1)
    try {
      if (resumes > 0) await reached(source, options, limit);
      const copied = await attempt(source, local, options, { limit, left, onBegun: () => (isBegun = true) });
      left.check(copied);
      return { ...copied, skipped: left.skipped };
    } catch (error) {
      if (!(error instanceof GuestError) || resumes === RESUMES || limit.isOver || !isBegun) throw error;
      // Only its own limit for reaching the agent may have passed: that of the copy has not.
      const isAway = error.status === "DEADLINE_EXCEEDED" && resumes > 0;
      if (!isAway && !isLost(error)) throw error;
      options.onReconnect?.(error);
    }
}

/** Waits for the agent. */
async function reached(
  { client, path }: DownloadSource,
  { signal }: DownloadFolderOptions,
  limit: TimeLimit,
): Promise<void> {
  const reach = { signal, waitForReady: true, timeoutMs: limit.left(REACH_TIMEOUT_MS), maxEntries: 1 };
  for await (const _ of client.list(path, reach)) return;
}

interface Attempt {
  readonly limit: TimeLimit;
  readonly left: LeftOut;
  readonly onBegun: () => void;
}

async function attempt(
  { client, path, stat }: DownloadSource,
  local: string,
  { crossMounts = true, exclude = [], failFast = false, onBytes, signal, umask }: DownloadFolderOptions,
  { limit, left, onBegun }: Attempt,
): Promise<{ readonly files: number; readonly bytes: number }> {
  const { mode, mtime, mtimeNanos } = await stat({ signal, timeoutMs: limit.left() });
  const fail = (failed: Pick<LeftEntry, "rawName" | "errno" | "local">): void => {
    left.add(failed);
    if (failFast) left.check();
  };
  const tree = client.readTree(path, {
    crossMounts,
    signal,
    timeoutMs: limit.left(),
    onFailure: fail,
  });
  const nothing = { name: NONE, linkTarget: NONE, size: 0, content: fileContent(NONE, 0) };
  const root = { ...nothing, type: "directory", mode, mtimeSeconds: secondsOf(mtime, mtimeNanos) } as const;
  // The directory itself first, but only once the agent has it open.
  const begun = (): TreeEntry => {
    onBegun();
    return root;
  };
  const onFailure = (rawName: Buffer, error: EntryError): void =>
    fail({ rawName, errno: error.errno, ...(error instanceof UnpackError && { local: true }) });
  const how: UnpackOptions = { umask, onFailure: failFast ? undefined : onFailure };
  const copied = await unpack(
    local,
    withRoot<TreeEntry>(begun, withoutExcluded<TreeEntry>(tree, exclude), onBytes),
    how,
  ).catch((error: unknown) => {
    throw guestErrorOf(error);
  });
  left.addUnnamed(tree.unnamed);
  return copied;
}

function secondsOf(mtime: Date | undefined, nanos: number): number {
  return secondsNotBefore(BigInt(Math.floor((mtime?.getTime() ?? 0) / 1_000)) * NS_PER_SECOND + BigInt(nanos));
}

function guestErrorOf(error: unknown): unknown {
  if (error instanceof TarError) return failure("DATA_LOSS", "ANSWER_UNREADABLE", error.message);
  if (error instanceof UnpackError)
    return failure("FAILED_PRECONDITION", "DESTINATION_FAILED", error.message, error.cause);
  return error instanceof EntryError ? failure("ABORTED", "FILE_CHANGED", error.message, error) : error;
}
