import type { Owners } from "../../tar/index.ts";
import { wholeNumber } from "../arguments.ts";
import type { GuestError } from "../errors/errors.ts";
import type { Names } from "../options.ts";
import { PLACE, type PlaceOptions } from "./path.ts";
import type { FileType } from "./stat.ts";
import type { WriteTreeOptions } from "./write-tree.ts";
import { WRITE_TREE } from "./write-tree.ts";

/** Result of a directory copy. */
export interface DirectoryCopy {
  readonly files: number;
  readonly bytes: number;
  /** Paths of devices, FIFOs and sockets, which cannot be copied. The paths are relative to the directory. */
  readonly skipped: readonly string[];
}

/** The entry that is passed to `filter`, with its attributes at the source. */
export interface CopyEntry {
  /** Path relative to the copied directory. Bytes that are not UTF-8 are replaced: see `rawName`. */
  readonly name: string;
  readonly rawName: Buffer;
  /**
   * "hard-link" is only used by downloads with `hardLinks`: the entry is another name of a file that `filter` was
   * called for earlier.
   */
  readonly type: FileType | "hard-link";
  /** Size in bytes; 0 for everything but a file. */
  readonly size: number;
  readonly mode: number;
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
  readonly mtime: Date;
  /** Nanoseconds of `mtime` since its last full second. */
  readonly mtimeNanos: number;
}

/** Options of both `upload` and `download`. */
interface CopyOptions {
  /** Keep the user and group ids of the source. Requires root at the destination. Default: false. */
  readonly keepOwners?: boolean | undefined;
  /**
   * Numeric user id of every copied entry. Default: with `keepOwners`, the id in the source; otherwise the usual owner
   * of a new file.
   */
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
  /** Copy hard links as hard links. Default: false, so that each name becomes a separate file. */
  readonly hardLinks?: boolean | undefined;
  /**
   * Copy the target of each symbolic link instead of the link. Default: false, so that symbolic links are copied as
   * links.
   */
  readonly followLinks?: boolean | undefined;
  /** Keep files and links that exist at the destination, instead of replacing them. Default: false. */
  readonly keepExisting?: boolean | undefined;

  /** Time limit of the whole copy, in milliseconds from now, including the time for reconnecting. Default: no limit. */
  readonly requestTimeoutMs?: number | undefined;
  /**
   * Glob patterns of entries to exclude, with everything in them. `node_modules` and `*.log` match at any depth, while
   * `build/*.o` is relative to the directory. `*` does not match a slash, but `**` does. Default: none.
   */
  readonly exclude?: readonly (string | Buffer)[] | undefined;
  /**
   * Called for each entry below the directory, except for those that `exclude` matches. The entry is copied only if
   * this function returns true, or a promise of true; a directory that is not copied is left out with everything in it.
   * `path` is relative to the directory. After a lost connection, the function may be called again for an entry.
   * Default: everything is copied.
   */
  readonly filter?: ((path: string, entry: CopyEntry) => boolean | Promise<boolean>) | undefined;
  /** Called with the size of each piece of content as it is copied. */
  readonly onBytes?: ((bytes: number) => void) | undefined;
  /** Called when the connection is lost, before the copy reconnects and continues. */
  readonly onReconnect?: ((lost: GuestError) => void) | undefined;
}

const COPY: Names<CopyOptions> = {
  keepOwners: true,
  uid: true,
  gid: true,
  hardLinks: true,
  followLinks: true,
  keepExisting: true,
  requestTimeoutMs: true,
  exclude: true,
  filter: true,
  onBytes: true,
  onReconnect: true,
};

/** A local path. Bytes are for paths that are not UTF-8. */
export type LocalPath = string | Uint8Array;

/** Converts the path to a type that Node's fs functions accept. */
export function localBytes(path: LocalPath): string | Buffer {
  return typeof path === "string" ? path : Buffer.from(path.buffer, path.byteOffset, path.length);
}

/** Returns the options about owners. Throws GuestError for an invalid number. */
export function ownersOf({ keepOwners, uid, gid }: CopyOptions): Owners {
  return {
    keepOwners,
    uid: uid === undefined ? undefined : wholeNumber(uid, "uid"),
    gid: gid === undefined ? undefined : wholeNumber(gid, "gid"),
  };
}

/** Options of `upload`. */
export interface UploadOptions extends WriteTreeOptions, CopyOptions {
  /** Create the directory in the guest, with missing parents. Default: true. */
  readonly parents?: boolean | undefined;
  /**
   * Replace existing files and links. If false, each file that exists counts as failed; to skip such files, use
   * `keepExisting`. Default: true.
   */
  readonly overwrite?: boolean | undefined;
  /**
   * Reject at the first entry that fails. Default: false. The call then copies all other entries before it rejects with
   * COPY_INCOMPLETE.
   */
  readonly failFast?: boolean | undefined;
  /** Do not descend into other local file systems. Default: false. */
  readonly oneFileSystem?: boolean | undefined;
}

export const UPLOAD: Names<UploadOptions> = { ...WRITE_TREE, ...COPY, oneFileSystem: true };

/** Options of `download`. */
export interface DownloadOptions extends CopyOptions, PlaceOptions {
  /** Descend into mount points below the directory. Default: true. If false, hard links are kept. */
  readonly crossMounts?: boolean | undefined;
  /**
   * Called for each entry that could not be copied, as soon as its failure is known. Devices, FIFOs and sockets are
   * reported with the errno "EOPNOTSUPP"; they do not make the call reject.
   */
  readonly onFailure?: WriteTreeOptions["onFailure"];
  /**
   * Reject at the first entry that fails. Default: false. The call then copies all other entries before it rejects with
   * COPY_INCOMPLETE.
   */
  readonly failFast?: boolean | undefined;
  /**
   * Umask that is applied to the copied entries on this machine. With 0, the entries keep the modes that they have in
   * the guest. Default: this process's umask.
   */
  readonly umask?: number | undefined;
}

/** The largest umask: a umask has only the permission bits (umask(2)). */
const LARGEST_UMASK = 0o777;

/** Returns the umask; undefined for this process's umask. Throws GuestError for an invalid number. */
export function umaskOf({ umask }: DownloadOptions): number | undefined {
  return umask === undefined ? undefined : wholeNumber(umask, "umask", LARGEST_UMASK);
}

export const DOWNLOAD: Names<DownloadOptions> = {
  ...COPY,
  ...PLACE,
  crossMounts: true,
  onFailure: true,
  failFast: true,
  umask: true,
};

/**
 * Limit on the reconnects in one copy, and the time limit of each reconnect. One reconnect is not enough, because a
 * standby followed by a restore breaks the connection more than once.
 */
export const RESUMES = 10;
export const REACH_TIMEOUT_MS = 30_000;
