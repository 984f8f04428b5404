import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";

/** Far above any certificate bundle or token. */
const FILE_LIMIT_BYTES = 1024 * 1024;

/** A credential file's bytes, or why they cannot be had (without the path, which is a bootstrap value). */
export type CredentialFile = { readonly bytes: Buffer } | { readonly problem: string };

/** Drops an open file's pages from the kernel's page cache. */
export type DropFileCache = (fd: number) => void;

// O_NONBLOCK: opening a FIFO must not block a thread for ever.
const OPEN_FLAGS = constants.O_RDONLY | constants.O_NONBLOCK;

/**
 * Reads a credential file whole, or says why it cannot be read. With `dropFileCache` past the page cache: after a restore
 * that still holds the bytes of the volume that was mounted when the snapshot was taken.
 */
export async function readCredentialFile(path: string, dropFileCache?: DropFileCache): Promise<CredentialFile> {
  if (!path.startsWith("/")) return { problem: "must be an absolute path" };
  if (path.includes("\0")) return { problem: "holds a NUL" };
  let file: FileHandle | undefined;
  try {
    if (dropFileCache !== undefined) await dropCacheOf(path, dropFileCache);
    file = await open(path, OPEN_FLAGS);
    const attributes = await file.stat();
    if (!attributes.isFile()) return { problem: "does not name a regular file" };
    if (attributes.size > FILE_LIMIT_BYTES) return { problem: "names a file of more than 1 MiB" };
    const bytes = await file.readFile();
    return bytes.length === 0 ? { problem: "names an empty file" } : { bytes };
  } catch (error) {
    return { problem: `names a file that cannot be read (${errnoOf(error)})` };
  } finally {
    await file?.close();
  }
}

/** Closed again before the file is read: only a fresh open is sure to see what is there now. */
async function dropCacheOf(path: string, dropFileCache: DropFileCache): Promise<void> {
  const file = await open(path, OPEN_FLAGS);
  try {
    dropFileCache(file.fd);
  } finally {
    await file.close();
  }
}

function errnoOf(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "unknown error";
}
