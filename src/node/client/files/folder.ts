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
  /** Time for the whole copy, in milliseconds from now, whatever becomes of the connection. Default: no limit. */
  readonly timeoutMs?: number | undefined;
  /**
   * Patterns of entries to leave out, with all that is in them: `node_modules`, `*.log` (anywhere), `build/*.o` (from
   * the directory on; `*` matches no slash, `**` does). Default: none.
   */
  readonly exclude?: readonly string[] | undefined;
  /** Called with the size of each piece of content on its way. */
  readonly onBytes?: ((bytes: number) => void) | undefined;
  /** Called when the connection is lost, before the copy reconnects and goes on. */
  readonly onReconnect?: ((lost: GuestError) => void) | undefined;
}

const COPY: Names<CopyFolderOptions> = { timeoutMs: true, exclude: true, onBytes: true, onReconnect: true };

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

/** The time limit of a whole copy, of which each of its calls gets what is left. */
export class TimeLimit {
  readonly #endMs: number;

  constructor(timeoutMs: number | undefined) {
    this.#endMs = timeoutMs === undefined ? Number.POSITIVE_INFINITY : performance.now() + timeoutMs;
  }

  get isOver(): boolean {
    return performance.now() >= this.#endMs;
  }

  /** What is left, at most so much; undefined: no limit. */
  left(mostMs: number = Number.POSITIVE_INFINITY): number | undefined {
    const leftMs = Math.min(mostMs, Math.max(0, this.#endMs - performance.now()));
    return leftMs === Number.POSITIVE_INFINITY ? undefined : leftMs;
  }
}
