import {
  FileSystemError,
  FileSystemHung,
  type FileSystemSpace,
  type MountedFileSystem,
  type Timers,
} from "../domain/index.ts";

/** A file system that has not answered within this time is named without its figures. */
const ANSWER_MS = 1_000;
/** Time for all of them: those that are left then are not asked in this reading. */
const ANSWERS_MS = 3_000;

/** A mounted file system; its space, or why that is not known (FileSystemUsage.problem). */
export interface FileSystemUsage extends MountedFileSystem {
  readonly space: FileSystemSpace | string;
}

/** Where file systems are asked for their space. Rejects with FileSystemError, for one that hangs much later. */
export interface SpaceOf {
  space(path: Uint8Array): Promise<FileSystemSpace>;
}

/** Asks file systems for their space, and waits for none that hangs. */
export class Space {
  readonly #fileSystem: SpaceOf;
  readonly #timers: Timers;
  /** Points of those that owe an answer: each holds one thread, and is not asked again meanwhile. */
  readonly #silent = new Set<string>();

  constructor(fileSystem: SpaceOf, timers: Timers) {
    this.#fileSystem = fileSystem;
    this.#timers = timers;
  }

  /** One after another: the threads are shared with all file calls. */
  async of(mounted: readonly MountedFileSystem[]): Promise<FileSystemUsage[]> {
    let isOver = false;
    const cancel = this.#timers.after(ANSWERS_MS, () => (isOver = true));
    const usages: FileSystemUsage[] = [];
    for (const one of mounted) usages.push({ ...one, space: await this.#ask(one.path, isOver) });
    cancel();
    // As df(1): a file system without blocks has no space to show.
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
