import type { ReadOptions } from "./thread/jobs.ts";
import { DirectReading } from "./direct-reading.ts";
import type { TarEntry } from "./read.ts";
import { type Choose, ThreadReading } from "./thread/read-local.ts";
import type { ReceivedEntry } from "./thread/entry-receiver.ts";
import { type ThreadUnpackOptions, unpackInThread } from "./thread/unpack-in-thread.ts";
import { type Unpacked, unpackHere } from "./unpack.ts";

/**
 * The entries of a local directory, or of a single file: the root first, with an empty name, parents before children,
 * sorted by name. Must be disposed of.
 */
export interface LocalReading extends Disposable {
  /**
   * Returns the next entry: directly if it has already arrived, otherwise as a promise. The content of an entry must be
   * read before the next entry is requested. Fails with the error of the system call if the root cannot be read.
   */
  next(): IteratorResult<ReceivedEntry, undefined> | Promise<IteratorResult<ReceivedEntry, undefined>>;
}

let mayBlock = false;

/**
 * From this call until the returned object is disposed of, copies that begin read and write local files on the calling
 * thread. This saves the start of a thread, about 40 ms of CPU time, which is as much as copying a thousand small files
 * takes. However, a file system that does not answer then blocks the whole process. Only a program whose process has
 * nothing else to do may use this, never the library.
 */
export function allowBlocking(): Disposable {
  mayBlock = true;
  return {
    [Symbol.dispose]() {
      mayBlock = false;
    },
  };
}

/**
 * Begins to read a local directory or file. Does not follow links below the root, unless `followLinks` is set. A thread
 * reads the files, so that a file system that does not answer does not block the caller's event loop. The returned
 * object can be disposed of even while a file system does not answer.
 *
 * @param choose which entries of a directory to read; an excluded directory is excluded with everything in it. If
 *   `choose` rejects, the iteration fails with that error.
 */
export function readLocal(
  root: string | Buffer,
  options: Omit<ReadOptions, "filter"> = {},
  choose?: Choose,
): LocalReading {
  const blocks = mayBlock && choose === undefined;
  return blocks ? new DirectReading(root, options) : new ThreadReading(root, options, choose);
}

/**
 * Unpacks an archive, which may be hostile, below a directory, which is created if it is missing. Touches nothing
 * outside of that directory: rejects names that lead out of it, and follows no links. Rejects hard links too, unless
 * `missingFile` is set. Ignores setuid bits. Rejects with TarError if the archive is invalid, with UnpackError for
 * failures of this machine, and with the errors of `entries` and of the callbacks. A thread writes the files, so that a
 * file system that does not answer does not block the caller's event loop.
 */
export async function unpack(
  root: string | Buffer,
  entries: Iterable<TarEntry> | AsyncIterable<TarEntry>,
  options: ThreadUnpackOptions = {},
): Promise<Unpacked> {
  options.signal?.throwIfAborted();
  return mayBlock ? unpackHere(root, entries, options) : unpackInThread(root, entries, options);
}
