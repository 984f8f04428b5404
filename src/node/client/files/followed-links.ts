import type { CallOptions } from "../grpc/channel.ts";
import { entryErrno, guestFile, type GuestFiles, joined, nanosecondsOf } from "./guest-file.ts";
import type { FileAttributes } from "./stat.ts";
import type { LeftEntry, ArchiveEntry } from "./tree-entry.ts";
import { secondsNotBefore } from "../../tar/index.ts";

const NONE = Buffer.alloc(0);
const CURRENT_DIRECTORY = Buffer.from(".");

/** The calls to the guest that are needed to follow symbolic links. */
export interface LinkedGuest extends GuestFiles {
  /** Reads the entries of a directory without following links. Calls `onFailure` for each entry that is left out. */
  readTree(path: Buffer, onFailure: (failed: LeftEntry) => void): AsyncIterable<ArchiveEntry>;
}

export interface FollowOptions {
  /** Returns the options of the next call, with the remaining time as its limit. */
  readonly call: () => CallOptions;
  /** Called for each entry that is left out. */
  readonly fail: (failed: Pick<LeftEntry, "rawName" | "errno">) => void;
}

/**
 * Yields the entries of a directory in the guest. In place of each symbolic link, yields the target of the link.
 * Reports a broken link, and a link to a directory that contains the link, as a failed entry.
 */
export async function* withFollowedLinks(
  guest: LinkedGuest,
  root: Buffer,
  entries: AsyncIterable<ArchiveEntry>,
  options: FollowOptions,
): AsyncGenerator<ArchiveEntry, void, undefined> {
  for await (const entry of entries) {
    if (entry.type === "symlink") yield* target(guest, root, entry.name, options);
    else yield entry;
  }
}

async function* target(
  guest: LinkedGuest,
  root: Buffer,
  name: Buffer,
  options: FollowOptions,
): AsyncGenerator<ArchiveEntry, void, undefined> {
  const path = joined(root, name);
  const { call, fail } = options;
  try {
    const attributes = await guest.stat(path, call());
    if (attributes.type === "file") yield guestFile(guest, path, name, attributes, call);
    else if (attributes.type !== "directory") fail({ rawName: name, errno: "EOPNOTSUPP" });
    else if (await isAbove(guest, root, name, attributes, options)) fail({ rawName: name, errno: "ELOOP" });
    else {
      const timeNs = nanosecondsOf(attributes);
      const { mode, uid, gid } = attributes;
      const head = { type: "directory", name, linkTarget: NONE, mode, uid, gid, size: 0 } as const;
      yield { ...head, mtimeNs: timeNs, mtimeSeconds: secondsNotBefore(timeNs), content: nothing() };
      // readTree does not follow a link that is the last component of a path. So append "." as the last component.
      const below = guest.readTree(joined(path, CURRENT_DIRECTORY), ({ rawName, errno }) =>
        fail({ rawName: joined(name, rawName), errno }),
      );
      for await (const entry of below) {
        const within = { ...entry, name: joined(name, entry.name) };
        if (entry.type === "symlink") yield* target(guest, root, within.name, options);
        else if (entry.type === "hard-link") yield { ...within, linkTarget: joined(name, entry.linkTarget) };
        else yield within;
      }
    }
  } catch (error) {
    const errno = entryErrno(error);
    if (errno === undefined) throw error;
    fail({ rawName: name, errno });
  }
}

/** Whether the link's target is one of the directories above the link. Following such a link would recurse without end. */
async function isAbove(
  guest: LinkedGuest,
  root: Buffer,
  name: Buffer,
  attributes: FileAttributes,
  { call }: FollowOptions,
): Promise<boolean> {
  const identity = identityOf(attributes);
  const parts = name.toString("latin1").split("/");
  for (let depth = 0; depth < parts.length; depth++) {
    const above = joined(root, Buffer.from(parts.slice(0, depth).join("/"), "latin1"));
    if (identityOf(await guest.stat(above, call())) === identity) return true;
  }
  return false;
}

/**
 * Identity of a directory. An inode number alone is ambiguous, because directories on different file systems may have
 * the same inode number, and the agent does not report device numbers. So the identity includes change time, mode and
 * owners; in practice, no two directories agree in all of these.
 */
function identityOf({ inode, ctime, ctimeNanos, mode, uid, gid }: FileAttributes): string {
  return [inode, ctime?.getTime(), ctimeNanos, mode, uid, gid].join(" ");
}

async function* nothing(): AsyncGenerator<Buffer> {
  // No content.
}
