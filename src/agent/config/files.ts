import { close, constants, fstat, open, readFile, stat, type Stats } from "node:fs";
import { promisify } from "node:util";
import { Mutex } from "../domain/index.ts";
import { errnoOf } from "../../shared/errors.ts";
import type { BootstrapValues, BootstrapVariable } from "./variables.ts";

/** Far above any certificate bundle, token or spec. */
const FILE_LIMIT_BYTES = 1024 * 1024;
/** For failures without an errno. */
const UNKNOWN = "unknown error";
/** Interval of the polls of a running read. They count its time, because a suspended guest's clock may jump. */
const POLL_MS = 1_000;
/** Polls after which a file's file system counts as one that does not answer. */
const LATE_POLLS = 5;
/** Errno of a file on such a file system, and the version reported for it. */
const NO_ANSWER = "ETIMEDOUT";
/** What is wrong with a variable that names such a file. */
export const NO_ANSWER_PROBLEM: string = `names a file whose file system does not answer (${NO_ANSWER})`;

// The workload waits for the files; loading node:fs/promises would add three milliseconds.
const openFile = promisify(open);
const statFile: (fd: number) => Promise<Stats> = promisify(fstat);
const readWhole: (fd: number) => Promise<Buffer> = promisify(readFile);
const closeFile = promisify(close);
const statPath: (path: string) => Promise<Stats> = promisify(stat);

// O_NONBLOCK: opening a FIFO must not block a thread for ever.
const OPEN_FLAGS = constants.O_RDONLY | constants.O_NONBLOCK;

/** A file's bytes, or why it cannot be used (without the path, which is a bootstrap value). */
export type BootstrapFile = ({ readonly bytes: Buffer } | { readonly problem: string }) & {
  /** Different after every change of the file. */
  readonly version: string;
};

/** Drops an open file's pages from the kernel's page cache. */
export type DropFileCache = (fd: number) => void;

/** What more is asked of a file that is read again: its problem, or undefined. */
export type FileRule = (attributes: Stats) => string | undefined;

/** Bounds a read at the start, which nothing else bounds: resolves as the read does. */
export type BoundRead = <Value>(variable: BootstrapVariable, reading: Promise<Value>) => Promise<Value>;

/**
 * The files that some of the variables name. A read on a file system that never answers holds its thread for ever. So,
 * while the agent runs, there is one read at a time, and none until one that was given up has returned.
 */
export class BootstrapFiles<Variable extends BootstrapVariable> {
  readonly #paths: ReadonlyMap<Variable, string>;
  readonly #rule: FileRule;
  /** Of the files last read, whether they are in use or not. */
  readonly #versions: Map<Variable, string>;
  readonly #mutex = new Mutex();
  #hangs = false;

  constructor(values: BootstrapValues, variables: readonly Variable[], rule: FileRule = () => undefined) {
    this.#paths = new Map(variables.flatMap((name) => (values.has(name) ? [[name, values.get(name) ?? ""]] : [])));
    this.#rule = rule;
    this.#versions = new Map(Array.from(this.#paths.keys(), (name) => [name, ""]));
  }

  has(variable: Variable): boolean {
    return this.#paths.has(variable);
  }

  /** Versions of the files last read; equal to `presentVersion()` while none has changed. */
  get readVersion(): string {
    return [...this.#versions.values()].join(";");
  }

  /** Versions of the files now. Empty without files. Never rejects. */
  async presentVersion(): Promise<string> {
    const versions = Array.from(this.#paths.values(), (path) =>
      this.#bounded(
        () => versionNow(path),
        NO_ANSWER,
        () => {},
      ),
    );
    return (await Promise.all(versions)).join(";");
  }

  /** Reads the file for the start. Undefined: the variable is not set. */
  async read(variable: Variable, bound: BoundRead = (_, reading) => reading): Promise<BootstrapFile | undefined> {
    const path = this.#paths.get(variable);
    return path === undefined ? undefined : this.#note(variable, await bound(variable, readFileAt(path)));
  }

  /**
   * Reads it while the agent runs; `dropFileCache` drops the page cache, which may have the bytes from before a
   * restore. A file system that takes longer than some five seconds is a problem. Never rejects.
   */
  async reread(variable: Variable, dropFileCache?: DropFileCache): Promise<BootstrapFile | undefined> {
    const path = this.#paths.get(variable);
    if (path === undefined) return undefined;
    const file = await this.#bounded<BootstrapFile>(
      () => readFileAt(path, { dropFileCache, rule: this.#rule }),
      { problem: NO_ANSWER_PROBLEM, version: NO_ANSWER },
      // Overwrite it: it may be the token.
      (late) => void ("bytes" in late && late.bytes.fill(0)),
    );
    return this.#note(variable, file);
  }

  #note(variable: Variable, file: BootstrapFile): BootstrapFile {
    this.#versions.set(variable, file.version);
    return file;
  }

  /** Resolves with the result of `operation`, which never rejects, or `noAnswer`. `drop` gets a late result. */
  #bounded<Value>(operation: () => Promise<Value>, noAnswer: Value, drop: (late: Value) => void): Promise<Value> {
    return this.#mutex.run(async () => {
      if (this.#hangs) return noAnswer;
      const { promise: late, resolve } = Promise.withResolvers<"late">();
      let polls = 0;
      const timer = setInterval(() => {
        polls += 1;
        if (polls >= LATE_POLLS) resolve("late");
      }, POLL_MS);
      const running = operation();
      const first = await Promise.race([running, late]);
      clearInterval(timer);
      if (first !== "late") return first;
      this.#hangs = true;
      void running.then((value) => {
        this.#hangs = false;
        drop(value);
      });
      return noAnswer;
    });
  }
}

/**
 * For a file whose writer decides what other users' processes see. It is root's, or of the agent's own user, and nobody
 * else may write it. Checked on the open descriptor: a path could lead elsewhere by then.
 */
export const writtenByHostAlone: FileRule = ({ uid, mode }) => {
  if (uid !== 0 && uid !== process.getuid?.()) return `names a file of user ${uid}: root must own it (chown 0)`;
  return (mode & 0o022) === 0 ? undefined : "names a file that its group or others may write (chmod go-w)";
};

/** Of a file that was read before. */
interface Again {
  readonly dropFileCache: DropFileCache | undefined;
  readonly rule: FileRule;
}

async function readFileAt(path: string, again?: Again): Promise<BootstrapFile> {
  const unusable = pathProblem(path);
  if (unusable !== undefined) return { problem: unusable, version: "" };
  let fd: number | undefined;
  try {
    if (again?.dropFileCache !== undefined) await dropCacheOf(path, again.dropFileCache);
    fd = await openFile(path, OPEN_FLAGS);
    const attributes = await statFile(fd);
    const version = versionOf(attributes);
    const problem = fileProblem(attributes) ?? again?.rule(attributes);
    if (problem !== undefined) return { problem, version };
    const bytes = await readWhole(fd);
    // A file that is written in place could be read half old, half new.
    if (again !== undefined && versionOf(await statFile(fd)) !== version)
      return { problem: "names a file that is being written", version };
    // One that was emptied meanwhile is empty too.
    return bytes.length === 0 ? { problem: EMPTY, version } : { bytes, version };
  } catch (error) {
    const errno = errnoOf(error) ?? UNKNOWN;
    return { problem: `names a file that cannot be read (${errno})`, version: errno };
  } finally {
    // The content is valid even if close(2) fails, as it may on a network file system.
    if (fd !== undefined) await closeFile(fd).catch(() => undefined);
  }
}

/** Version of the file that the path names now. */
async function versionNow(path: string): Promise<string> {
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

const EMPTY = "names an empty file";

function fileProblem(attributes: Stats): string | undefined {
  if (!attributes.isFile()) return "does not name a regular file";
  // A file of size 0, as in /proc, may have no end: read no more than the size that fstat(2) reports.
  if (attributes.size === 0) return EMPTY;
  return attributes.size > FILE_LIMIT_BYTES ? "names a file of more than 1 MiB" : undefined;
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
