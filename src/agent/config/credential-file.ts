import {
  close,
  closeSync,
  constants,
  fstat,
  fstatSync,
  open,
  openSync,
  readFile,
  readFileSync,
  stat,
  type Stats,
} from "node:fs";
import { promisify } from "node:util";
import { errnoOf } from "../../shared/errors.ts";

/** Far above any certificate bundle or token. */
const FILE_LIMIT_BYTES = 1024 * 1024;
/** For failures without an errno. */
const UNKNOWN = "unknown error";

// The first connection waits for the files' versions; loading node:fs/promises would add three milliseconds.
const openFile = promisify(open);
const statFile: (fd: number) => Promise<Stats> = promisify(fstat);
const readWhole: (fd: number) => Promise<Buffer> = promisify(readFile);
const closeFile = promisify(close);
const statPath: (path: string) => Promise<Stats> = promisify(stat);

/** A credential file's bytes, or why it cannot be read (without the path, which is a bootstrap value). */
export type CredentialFile = ({ readonly bytes: Buffer } | { readonly problem: string }) & {
  /** Equal to `credentialFileVersion` until the file changes. */
  readonly version: string;
};

/** Drops an open file's pages from the kernel's page cache. */
export type DropFileCache = (fd: number) => void;

// O_NONBLOCK: opening a FIFO must not block a thread for ever.
const OPEN_FLAGS = constants.O_RDONLY | constants.O_NONBLOCK;

/** Reads a whole credential or spec file, or says why it cannot. Synchronous: for the start. */
export function readCredentialFile(path: string): CredentialFile {
  const unusable = pathProblem(path);
  if (unusable !== undefined) return { problem: unusable, version: "" };
  let fd: number | undefined;
  try {
    fd = openSync(path, OPEN_FLAGS);
    const opened = fd;
    const attributes = fstatSync(fd);
    return fileProblem(attributes) ?? content(readFileSync(opened), attributes);
  } catch (error) {
    return unreadable(error);
  } finally {
    if (fd !== undefined) closeSync(fd);
  }
}

/** What more is asked of a file that is read again. */
type FileRule = (attributes: Stats) => string | undefined;

/**
 * For a file whose writer decides what other users' processes see. It is root's, or of the agent's own user, and nobody
 * else may write it. Checked on the open descriptor: a path could lead elsewhere by then.
 */
export const writtenByHostAlone: FileRule = ({ uid, mode }) => {
  if (uid !== 0 && uid !== process.getuid?.()) return `names a file of user ${uid}: root must own it (chown 0)`;
  return (mode & 0o022) === 0 ? undefined : "names a file that its group or others may write (chmod go-w)";
};

/** The same without blocking; `dropFileCache` drops the page cache, which may have the bytes from before a restore. */
export async function rereadCredentialFile(
  path: string,
  dropFileCache?: DropFileCache,
  rule: FileRule = () => undefined,
): Promise<CredentialFile> {
  const unusable = pathProblem(path);
  if (unusable !== undefined) return { problem: unusable, version: "" };
  let fd: number | undefined;
  try {
    if (dropFileCache !== undefined) await dropCacheOf(path, dropFileCache);
    fd = await openFile(path, OPEN_FLAGS);
    const attributes = await statFile(fd);
    const version = versionOf(attributes);
    const problem = rule(attributes);
    const file = fileProblem(attributes) ?? (problem === undefined ? undefined : { problem, version });
    if (file !== undefined) return file;
    const bytes = await readWhole(fd);
    // A file that is written in place could be read half old, half new.
    if (versionOf(await statFile(fd)) !== version) return { problem: "names a file that is being written", version };
    return content(bytes, attributes);
  } catch (error) {
    return unreadable(error);
  } finally {
    // The content is valid even if close(2) fails, as it may on a network file system.
    if (fd !== undefined) await closeFile(fd).catch(() => undefined);
  }
}

/** Version of the file that the path names now, different after every change. Never rejects. */
export async function credentialFileVersion(path: string): Promise<string> {
  if (pathProblem(path) !== undefined) return "";
  try {
    return versionOf(await statPath(path));
  } catch (error) {
    return errnoOf(error) ?? UNKNOWN;
  }
}

function versionOf({ dev, ino, size, mtimeMs, ctimeMs }: Stats): string {
  return [dev, ino, size, mtimeMs, ctimeMs].join(" ");
}

function pathProblem(path: string): string | undefined {
  if (!path.startsWith("/")) return "must be an absolute path";
  return path.includes("\0") ? "holds a NUL" : undefined;
}

function fileProblem(attributes: Stats): CredentialFile | undefined {
  const version = versionOf(attributes);
  if (!attributes.isFile()) return { problem: "does not name a regular file", version };
  // A file of size 0, as in /proc, may have no end: read no more than the size that fstat(2) reports.
  if (attributes.size === 0) return { problem: "names an empty file", version };
  return attributes.size > FILE_LIMIT_BYTES ? { problem: "names a file of more than 1 MiB", version } : undefined;
}

/** A file that was emptied meanwhile is empty too. */
function content(bytes: Buffer, attributes: Stats): CredentialFile {
  const version = versionOf(attributes);
  return bytes.length === 0 ? { problem: "names an empty file", version } : { bytes, version };
}

function unreadable(error: unknown): CredentialFile {
  const errno = errnoOf(error) ?? UNKNOWN;
  return { problem: `names a file that cannot be read (${errno})`, version: errno };
}

/** Closed before the file is read: only a new open is sure to see the current content. */
async function dropCacheOf(path: string, dropFileCache: DropFileCache): Promise<void> {
  const fd = await openFile(path, OPEN_FLAGS);
  try {
    dropFileCache(fd);
  } finally {
    await closeFile(fd);
  }
}
