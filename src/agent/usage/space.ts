import {
  FileSystemError,
  FileSystemHung,
  type FileSystemSpace,
  type MountedFileSystem,
  type Timers,
} from "../domain/index.ts";

/** A file system that does not respond within this time is listed without its space. */
const ANSWER_MS = 1_000;
/** Limit for all file systems of a reading. After this time, no further file systems are queried. */
const ANSWERS_MS = 3_000;

/** A mounted file system, with its space or the reason why the space is not known (FileSystemUsage.problem). */
export interface FileSystemUsage extends MountedFileSystem {
  readonly space: FileSystemSpace | string;
}

/**
 * Reads the space of a file system. Rejects with FileSystemError. If the file system hangs, rejects only after a long
 * time.
 */
export interface SpaceReader {
  space(path: Uint8Array): Promise<FileSystemSpace>;
}

/** Reads the space of file systems without waiting for those that do not respond. */
export class FileSystemSpaces {
  readonly #fileSystem: SpaceReader;
  readonly #timers: Timers;
  /** Mount points whose query hangs and blocks a thread. They are not queried again until that query has returned. */
  readonly #silent = new Set<string>();

  constructor(fileSystem: SpaceReader, timers: Timers) {
    this.#fileSystem = fileSystem;
    this.#timers = timers;
  }

  /** Queries one file system after another, so that a call uses few of the threads that all file calls share. */
  async of(mounted: readonly MountedFileSystem[]): Promise<FileSystemUsage[]> {
    let isOver = false;
    const cancel = this.#timers.after(ANSWERS_MS, () => (isOver = true));
    const usages: FileSystemUsage[] = [];
    for (const one of mounted) usages.push({ ...one, space: await this.#ask(one.path, isOver) });
    cancel();
    // Leaves out file systems without blocks, as df(1) does.
    return usages.filter(({ space }) => typeof space === "string" || space.totalBytes > 0);
  }

  async #ask(path: Uint8Array, isOver: boolean): Promise<FileSystemSpace | string> {
    const point = Buffer.from(path).toString("latin1");
    if (this.#silent.has(point)) return "NO_ANSWER";
    if (isOver) return "NOT_ASKED";
    this.#silent.add(point);
    const asked = this.#fileSystem.space(path).catch(problemOf);
    void asked.then(() => this.#silent.delete(point));
    const { promise: late, resolve } = Promise.withResolvers<string>();
    const cancel = this.#timers.after(ANSWER_MS, () => resolve("NO_ANSWER"));
    return Promise.race([asked, late]).finally(cancel);
  }
}

function problemOf(error: unknown): string {
  if (error instanceof FileSystemHung) return "NO_ANSWER";
  if (error instanceof FileSystemError) return error.errno;
  throw error;
}
