import type { Owners } from "../../tar/index.ts";
import { wholeNumber } from "../arguments.ts";
import type { GuestError } from "../errors.ts";
import type { Names } from "../options.ts";
import type { WriteTreeOptions } from "./write-tree.ts";
import { WRITE_TREE } from "./write-tree.ts";

/** What of a directory was copied. */
export interface FolderCopy {
  readonly files: number;
  readonly bytes: number;
  /** Paths that were left out, from the directory on: devices, FIFOs and sockets. */
  readonly skipped: readonly string[];
}

/** Options of `uploadFolder` and `downloadFolder` alike. */
interface CopyFolderOptions {
  /** Entries get the owners that they have at the source, by number. Needs root at the destination. Default: false. */
  readonly keepOwners?: boolean | undefined;
  /** Owner of all that is copied, by number. Default: as `keepOwners` says; else the user that any new file gets. */
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
  /** Names of one file stay names of one file (hard links). Default: false, each becomes a file of its own. */
  readonly hardLinks?: boolean | undefined;
  /** Copy what symbolic links lead to, in their place. Default: false, links are copied as links. */
  readonly followLinks?: boolean | undefined;
  /** Leave files and links as they are that are at the destination already. Default: false, they are replaced. */
  readonly keepExisting?: boolean | undefined;

  /** Time for the whole copy, in milliseconds from now, whatever becomes of the connection. Default: no limit. */
  readonly timeoutMs?: number | undefined;
  /**
   * Patterns of entries to leave out, with all that is in them: `node_modules`, `*.log` (anywhere), `build/*.o` (from
   * the directory on; `*` matches no slash, `**` does). Default: none.
   */
  readonly exclude?: readonly (string | Buffer)[] | undefined;
  /** Called with the size of each piece of content on its way. */
  readonly onBytes?: ((bytes: number) => void) | undefined;
  /** Called when the connection is lost, before the copy reconnects and goes on. */
  readonly onReconnect?: ((lost: GuestError) => void) | undefined;
}

const COPY: Names<CopyFolderOptions> = {
  keepOwners: true,
  uid: true,
  gid: true,
  hardLinks: true,
  followLinks: true,
  keepExisting: true,
  timeoutMs: true,
  exclude: true,
  onBytes: true,
  onReconnect: true,
};

/** A path of this machine. Bytes are for one that is not UTF-8: names need not be. */
export type LocalPath = string | Uint8Array;

/** The path as Node's calls have it. */
export function localBytes(path: LocalPath): string | Buffer {
  return typeof path === "string" ? path : Buffer.from(path.buffer, path.byteOffset, path.length);
}

/** The options that say who owns what is copied. Throws GuestError for a number that is not an owner. */
export function ownersOf({ keepOwners, uid, gid }: CopyFolderOptions): Owners {
  return {
    keepOwners,
    uid: uid === undefined ? undefined : wholeNumber(uid, "uid"),
    gid: gid === undefined ? undefined : wholeNumber(gid, "gid"),
  };
}

/** Options of `uploadFolder`. */
export interface UploadFolderOptions extends WriteTreeOptions, CopyFolderOptions {
  /** Reject at the first entry that fails. Default: false; the others are written before COPY_INCOMPLETE. */
  readonly failFast?: boolean | undefined;
  /** Do not descend into other file systems of this machine. Default: false. */
  readonly oneFileSystem?: boolean | undefined;
}

/** Their names. */
export const UPLOAD: Names<UploadFolderOptions> = { ...WRITE_TREE, ...COPY, oneFileSystem: true };

/** Options of `downloadFolder`. */
export interface DownloadFolderOptions extends CopyFolderOptions {
  readonly signal?: AbortSignal | undefined;
  /** Read what is mounted below it, too. Default: true. */
  readonly crossMounts?: boolean | undefined;
  /** Called for each entry that is left out, as soon as that is known; devices, FIFOs and sockets: "EOPNOTSUPP". */
  readonly onFailure?: WriteTreeOptions["onFailure"];
  /** Reject at the first entry that fails. Default: false; the others are written before COPY_INCOMPLETE. */
  readonly failFast?: boolean | undefined;
  /** Permission bits that nothing gets on this machine; 0 keeps the guest's modes. Default: this process's umask. */
  readonly umask?: number | undefined;
}

/** Their names. */
export const DOWNLOAD: Names<DownloadFolderOptions> = {
  ...COPY,
  signal: true,
  crossMounts: true,
  onFailure: true,
  failFast: true,
  umask: true,
};

/** Tries after a lost connection; a standby with its restore loses several. How long each waits for the agent. */
export const RESUMES = 10;
export const REACH_TIMEOUT_MS = 30_000;
