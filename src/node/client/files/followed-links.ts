import { FileType } from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import type { CallOptions } from "../channel.ts";
import type { PathAttributes } from "./attributes.ts";
import { entryErrno, guestFile, type GuestFiles, joined, nanosecondsOf } from "./guest-file.ts";
import type { LeftEntry, TreeEntry } from "./tree-entry.ts";
import { secondsNotBefore } from "../../tar/index.ts";

const NONE = Buffer.alloc(0);
const HERE = Buffer.from(".");

/** What following links needs of a client. */
export interface LinkedGuest extends GuestFiles {
  /** The entries of a directory, in which links are not followed. Calls `onFailure` for each that is left out. */
  readTree(path: Buffer, onFailure: (failed: LeftEntry) => void): AsyncIterable<TreeEntry>;
}

/** How links are followed. */
export interface FollowOptions {
  /** Of the calls; each gets what is left of the time. */
  readonly call: () => CallOptions;
  /** Called for each entry that is left out. */
  readonly fail: (failed: Pick<LeftEntry, "rawName" | "errno">) => void;
}

/**
 * The entries of a directory of the guest with what symbolic links lead to in their place. A link that leads nowhere,
 * or to a directory above it, is a failed entry.
 */
export async function* withFollowedLinks(
  guest: LinkedGuest,
  root: Buffer,
  entries: AsyncIterable<TreeEntry>,
  options: FollowOptions,
): AsyncGenerator<TreeEntry, void, undefined> {
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
): AsyncGenerator<TreeEntry, void, undefined> {
  const path = joined(root, name);
  const { call, fail } = options;
  try {
    const attributes = await guest.statPath(path, call());
    if (attributes.type === FileType.REGULAR) yield guestFile(guest, path, name, attributes, call);
    else if (attributes.type !== FileType.DIRECTORY) fail({ rawName: name, errno: "EOPNOTSUPP" });
    else if (await isAbove(guest, root, name, attributes, options)) fail({ rawName: name, errno: "ELOOP" });
    else {
      const timeNs = nanosecondsOf(attributes);
      const { mode, uid, gid } = attributes;
      const head = { type: "directory", name, linkTarget: NONE, mode, uid, gid, size: 0 } as const;
      yield { ...head, mtimeNs: timeNs, mtimeSeconds: secondsNotBefore(timeNs), content: nothing() };
      // A link at the end of a path is followed only with something behind it.
      const below = guest.readTree(joined(path, HERE), ({ rawName, errno }) =>
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

/** Whether a directory to which a link leads is one of those above the link. */
async function isAbove(
  guest: LinkedGuest,
  root: Buffer,
  name: Buffer,
  attributes: PathAttributes,
  { call }: FollowOptions,
): Promise<boolean> {
  const identity = identityOf(attributes);
  const parts = name.toString("latin1").split("/");
  for (let depth = 0; depth < parts.length; depth++) {
    const above = joined(root, Buffer.from(parts.slice(0, depth).join("/"), "latin1"));
    if (identityOf(await guest.statPath(above, call())) === identity) return true;
  }
  return false;
}

/** An inode is one of its file system, which attributes do not name: two with these times and owners do not occur. */
function identityOf({ inode, ctime, ctimeNanos, mode, uid, gid }: PathAttributes): string {
  return [inode, ctime?.getTime(), ctimeNanos, mode, uid, gid].join(" ");
}

async function* nothing(): AsyncGenerator<Buffer> {
  // No content.
}
