import { constants } from "node:fs";
import { getSystemErrorName } from "node:util";
import { Mutex } from "../domain/index.ts";
import type { BootstrapValues, BootstrapVariable } from "./variables.ts";

/** Far above any certificate bundle, token or spec. */
const FILE_LIMIT_BYTES = 1024 * 1024;
/** Enough to recognise a path by. */
const SHOWN_PATH_LENGTH = 200;
/** Interval of the polls of a running read. They count its time, because a suspended guest's clock may jump. */
const POLL_MS = 1_000;
/** Polls after which a file's file system counts as one that does not answer. */
const LATE_POLLS = 5;
/** Errno of a file on such a file system, and the version reported for it. */
const NO_ANSWER = "ETIMEDOUT";
/** What is wrong with a variable that names such a file. */
export const NO_ANSWER_PROBLEM: string = `names a file whose file system does not respond (${NO_ANSWER})`;

/** UTF-8's byte order mark, which editors of Windows put before a text. */
const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf]);

/** The problem of a text that begins with a byte order mark, which nothing that reads these files ignores. */
export function byteOrderMarkProblem(bytes: Buffer): string | undefined {
  const has = bytes.subarray(0, BYTE_ORDER_MARK.length).equals(BYTE_ORDER_MARK);
  return has ? "begins with a byte order mark (BOM, EF BB BF); save it as UTF-8 without one" : undefined;
}

/** A file's bytes, or why it cannot be used. Only a file that cannot be read is named by its path. */
export type BootstrapFile = ({ readonly bytes: Buffer } | { readonly problem: string }) & {
  /** Different after every change of the file. */
  readonly version: string;
};

/** `readFiles` of the addon: reads files, or only looks at them, on one thread, which may wait for a file system. */
export type ReadFiles = (paths: Uint8Array, limitBytes: number) => Promise<Buffer | number>;

/** A file as the addon has found it; an errno: it could not be read. */
type Found = FileState | string;

interface FileState {
  readonly version: string;
  readonly size: number;
  readonly mode: number;
  readonly uid: number;
  readonly hasChanged: boolean;
  readonly bytes: Buffer;
}

/** What more is asked of a file that is read again: its problem, or undefined. */
export type FileRule = (file: Pick<FileState, "uid" | "mode">) => string | undefined;

/** Bounds a read at the start, which nothing else bounds: resolves as the read does. */
export type BoundRead = <Value>(variable: BootstrapVariable, reading: Promise<Value>) => Promise<Value>;

/**
 * The files that some of the variables name. A read on a file system that never answers holds its thread for ever. So,
 * while the agent runs, there is one read at a time, and none until one that was given up has returned.
 */
export class BootstrapFiles<Variable extends BootstrapVariable> {
  readonly #paths: ReadonlyMap<Variable, string>;
  readonly #readFiles: ReadFiles;
  readonly #rule: FileRule;
  /** Of the files last read, whether they are in use or not. */
  readonly #versions: Map<Variable, string>;
  readonly #mutex = new Mutex();
  #hangs = false;

  constructor(
    values: BootstrapValues,
    variables: readonly Variable[],
    readFiles: ReadFiles,
    rule: FileRule = () => undefined,
  ) {
    this.#readFiles = readFiles;
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

  /** Version of one of the files as it was last read; empty: it has not been read. */
  versionOf(variable: Variable): string {
    return this.#versions.get(variable) ?? "";
  }

  /** Versions of the files now. Empty without files. Never rejects. */
  async presentVersion(): Promise<string> {
    const paths = [...this.#paths.values()];
    const versions = await this.#bounded(
      async () => (await this.#found(paths, -1)).map(versionOf),
      paths.map(() => NO_ANSWER),
      () => {},
    );
    return versions.join(";");
  }

  /** Reads the file for the start. Undefined: the variable is not set. */
  async read(variable: Variable, bound: BoundRead = (_, reading) => reading): Promise<BootstrapFile | undefined> {
    const path = this.#paths.get(variable);
    if (path === undefined) return undefined;
    const [found = ""] = await bound(variable, this.#found([path]));
    return this.#note(variable, usable(path, found));
  }

  /**
   * Reads all while the agent runs, past the page cache, which may have the bytes from before a restore. A file system
   * that takes longer than some five seconds is a problem of all. On one thread: each that wakes after a restore
   * touches ten pages of the guest's memory. Never rejects.
   */
  async reread(): Promise<ReadonlyMap<Variable, BootstrapFile>> {
    const paths = [...this.#paths.values()];
    const files = await this.#bounded<readonly BootstrapFile[]>(
      async () => (await this.#found(paths)).map((found, n) => usable(paths[n] ?? "", found, this.#rule)),
      paths.map(() => ({ problem: NO_ANSWER_PROBLEM, version: NO_ANSWER })),
      // Overwrite them: one may be the token.
      (late) => {
        for (const file of late) if ("bytes" in file) file.bytes.fill(0);
      },
    );
    const variables = [...this.#paths.keys()];
    return new Map(files.map((file, n) => [variables[n] as Variable, this.#note(variables[n] as Variable, file)]));
  }

  async #found(paths: readonly string[], limitBytes = FILE_LIMIT_BYTES): Promise<readonly Found[]> {
    if (paths.length === 0) return [];
    // One that is unusable, and may hold a NUL, leads nowhere.
    const usablePaths = paths.map((path) => `${pathProblem(path) === undefined ? path : ""}\0`);
    return foundIn(await this.#readFiles(Buffer.from(usablePaths.join("")), limitBytes), paths.length);
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

const NUMBER_BYTES = 8;
/** Of the answer of `ReadFiles`, for each file. */
const NUMBERS = 10;

/** Each of the files in the addon's answer. */
function foundIn(answer: Buffer | number, count: number): Found[] {
  let at = 0;
  return Array.from({ length: count }, () => {
    if (typeof answer === "number") return getSystemErrorName(answer);
    const numbers = Array.from({ length: NUMBERS }, (_, n) => answer.readBigInt64LE(at + n * NUMBER_BYTES));
    const [errno = 0, , , size = 0, , , mode = 0, uid = 0, changed, length = 0] = numbers.map(Number);
    const start = at + NUMBERS * NUMBER_BYTES;
    at = start + length;
    if (errno !== 0) return getSystemErrorName(-errno);
    // Of device, inode, size, and the times of the last change of bytes and attributes.
    const version = numbers.slice(1, 6).join(" ");
    return { version, size, mode, uid, hasChanged: changed === 1, bytes: answer.subarray(start, at) };
  });
}

function usable(path: string, found: Found, rule: FileRule = () => undefined): BootstrapFile {
  const unusable = pathProblem(path);
  if (unusable !== undefined) return { problem: unusable, version: "" };
  if (typeof found === "string") return { problem: unreadable(path, found), version: found };
  const problem = fileProblem(found) ?? rule(found);
  return problem === undefined ? found : { problem, version: found.version };
}

/**
 * The one message that has a value of the bootstrap channel: without the path, nobody finds a missing mount. It is cut,
 * and escaped where it is not plain text.
 */
function unreadable(path: string, errno: string): string {
  const shown = /^[\x21-\x7e]+$/.test(path) ? path : JSON.stringify(path);
  const cut = shown.length > SHOWN_PATH_LENGTH ? `${shown.slice(0, SHOWN_PATH_LENGTH)}…` : shown;
  return `names ${cut}, which user ${process.getuid?.() ?? "unknown"} cannot read (${errno})`;
}

function versionOf(found: Found): string {
  return typeof found === "string" ? found : found.version;
}

function pathProblem(path: string): string | undefined {
  if (!path.startsWith("/")) return "must be an absolute path";
  return path.includes("\0") ? "contains a NUL byte" : undefined;
}

function fileProblem({ mode, size, hasChanged, bytes }: FileState): string | undefined {
  if ((mode & constants.S_IFMT) !== constants.S_IFREG) return "does not name a regular file";
  if (size > FILE_LIMIT_BYTES) return "names a file of more than 1 MiB";
  // A file that is written in place could be read half old, half new.
  if (hasChanged) return "names a file that is being written";
  // A file of size 0, as in /proc, may have no end: no more than the size that fstat(2) reports was read.
  return bytes.length === 0 ? "names an empty file" : undefined;
}
