import { constants } from "node:fs";
import { getSystemErrorName } from "node:util";
import { Mutex } from "../domain/index.ts";
import type { BootstrapValues, BootstrapVariable } from "./variables.ts";

/** Limit for the size of a file. It is far more than any certificate bundle, token or spec needs. */
const FILE_LIMIT_BYTES = 1024 * 1024;
/** Number of characters of a path that a message shows. They suffice to recognise the path. */
const SHOWN_PATH_LENGTH = 200;
/**
 * While a read runs, a timer with this interval counts how long it takes. The clock is not used, because it may jump
 * when a suspended guest resumes.
 */
const POLL_MS = 1_000;
/** Number of intervals (POLL_MS) without an answer after which a file system counts as not responding. */
const TIMEOUT_POLLS = 5;
/** Says that a file system does not respond: as the errno in the problem, and as the `version` of the file. */
const NO_ANSWER = "ETIMEDOUT";
export const NO_ANSWER_PROBLEM: string = `names a file whose file system does not respond (${NO_ANSWER})`;

/** The UTF-8 byte order mark, which some Windows editors write at the beginning of a file. */
const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf]);

/**
 * If the text begins with a byte order mark, returns a description of this problem. Such a text is invalid, because
 * neither the parsers of specs nor OpenSSL skip the mark.
 */
export function byteOrderMarkProblem(bytes: Buffer): string | undefined {
  const has = bytes.subarray(0, BYTE_ORDER_MARK.length).equals(BYTE_ORDER_MARK);
  return has ? "begins with a byte order mark (BOM, EF BB BF); save it as UTF-8 without one" : undefined;
}

/** The bytes of a file, or why it cannot be used. The problem contains the path only if the file cannot be read. */
export type BootstrapFile = ({ readonly bytes: Buffer } | { readonly problem: string }) & {
  /** A string that is different after every change of the file, so that a change can be detected. */
  readonly version: string;
};

/**
 * The addon's `readFiles`: reads files, or only their metadata, on a separate thread, because a file system may be
 * slow.
 */
export type ReadFiles = (paths: Uint8Array, limitBytes: number) => Promise<Buffer | number>;

/** A file as the addon read it, or the name of the errno with which the read failed. */
type ReadResult = FileState | string;

interface FileState {
  readonly version: string;
  readonly size: number;
  readonly mode: number;
  readonly uid: number;
  readonly hasChanged: boolean;
  readonly bytes: Buffer;
}

/** A check that applies only when a file is read again. Returns the problem, or undefined. */
export type FileRule = (file: Pick<FileState, "uid" | "mode">) => string | undefined;

/**
 * Resolves with the result of `reading`, which reads a file at the agent's start. Ends the agent if this takes too
 * long. Needed because `BootstrapFiles.read` has no timeout of its own.
 */
export type BoundRead = <Value>(variable: BootstrapVariable, reading: Promise<Value>) => Promise<Value>;

/**
 * Reads the files that bootstrap variables name. A read from a file system that hangs blocks a thread for ever. So
 * after the start, at most one read is in progress. If it has timed out, all further reads fail until it returns.
 */
export class BootstrapFiles<Variable extends BootstrapVariable> {
  readonly #paths: ReadonlyMap<Variable, string>;
  readonly #readFiles: ReadFiles;
  readonly #rule: FileRule;
  /** Version of each file when it was last read, even if its content was rejected. */
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

  /** Versions of the files as last read. Equal to `presentVersion()` as long as no file has changed. */
  get readVersion(): string {
    return [...this.#versions.values()].join(";");
  }

  /** Version of one file as last read; empty if it was not read yet. */
  versionOf(variable: Variable): string {
    return this.#versions.get(variable) ?? "";
  }

  /** Current versions of the files; empty if there are no files. Never rejects. */
  async presentVersion(): Promise<string> {
    const paths = [...this.#paths.values()];
    const versions = await this.#bounded(
      async () => (await this.#found(paths, -1)).map(versionOf),
      paths.map(() => NO_ANSWER),
      () => {},
    );
    return versions.join(";");
  }

  /** Reads the file that a variable names, during the start. Returns undefined if the variable is not set. */
  async read(variable: Variable, bound: BoundRead = (_, reading) => reading): Promise<BootstrapFile | undefined> {
    const path = this.#paths.get(variable);
    if (path === undefined) return undefined;
    const [found = ""] = await bound(variable, this.#found([path]));
    return this.#note(variable, checkFile(path, found));
  }

  /**
   * Reads all files again while the agent runs. Bypasses the page cache, because it may hold bytes from before a
   * restore. If the reads take longer than about five seconds, reports all files as not responding. Never rejects.
   *
   * Uses only one thread, because each thread that wakes after a restore touches ten pages of the guest's memory.
   */
  async reread(): Promise<ReadonlyMap<Variable, BootstrapFile>> {
    const paths = [...this.#paths.values()];
    const files = await this.#bounded<readonly BootstrapFile[]>(
      async () => (await this.#found(paths)).map((found, n) => checkFile(paths[n] ?? "", found, this.#rule)),
      paths.map(() => ({ problem: NO_ANSWER_PROBLEM, version: NO_ANSWER })),
      // A result that comes after the timeout is not used. Its bytes are overwritten, because they may contain the
      // token.
      (late) => {
        for (const file of late) if ("bytes" in file) file.bytes.fill(0);
      },
    );
    const variables = [...this.#paths.keys()];
    return new Map(files.map((file, n) => [variables[n] as Variable, this.#note(variables[n] as Variable, file)]));
  }

  async #found(paths: readonly string[], limitBytes = FILE_LIMIT_BYTES): Promise<readonly ReadResult[]> {
    if (paths.length === 0) return [];
    // The list separates paths by NULs. An invalid path may itself contain a NUL, so the list has an empty path in its
    // place. The addon cannot open an empty path.
    const usablePaths = paths.map((path) => `${pathProblem(path) === undefined ? path : ""}\0`);
    return foundIn(await this.#readFiles(Buffer.from(usablePaths.join("")), limitBytes), paths.length);
  }

  #note(variable: Variable, file: BootstrapFile): BootstrapFile {
    this.#versions.set(variable, file.version);
    return file;
  }

  /**
   * Resolves with the result of `operation`, which must never reject, or with `noAnswer` after the timeout. A result
   * that comes later is passed to `drop`.
   */
  #bounded<Value>(operation: () => Promise<Value>, noAnswer: Value, drop: (late: Value) => void): Promise<Value> {
    return this.#mutex.run(async () => {
      if (this.#hangs) return noAnswer;
      const { promise: late, resolve } = Promise.withResolvers<"late">();
      let polls = 0;
      const timer = setInterval(() => {
        polls += 1;
        if (polls >= TIMEOUT_POLLS) resolve("late");
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
 * Rule for files whose content affects processes of other users: root or the agent's own user must own the file, and
 * nobody else may have write permission. The open descriptor is checked, because after the open, the path could name
 * another file.
 */
export const onlyHostMayWrite: FileRule = ({ uid, mode }) => {
  if (uid !== 0 && uid !== process.getuid?.()) return `names a file of user ${uid}: root must own it (chown 0)`;
  return (mode & 0o022) === 0 ? undefined : "names a file that its group or others may write (chmod go-w)";
};

const NUMBER_BYTES = 8;
/** How many numbers the answer of `ReadFiles` has per file. */
const NUMBERS = 10;

/** Decodes the answer of `ReadFiles`: one result per file, in the order of the paths. */
function foundIn(answer: Buffer | number, count: number): ReadResult[] {
  let at = 0;
  return Array.from({ length: count }, () => {
    if (typeof answer === "number") return getSystemErrorName(answer);
    const numbers = Array.from({ length: NUMBERS }, (_, n) => answer.readBigInt64LE(at + n * NUMBER_BYTES));
    const [errno = 0, , , size = 0, , , mode = 0, uid = 0, changed, length = 0] = numbers.map(Number);
    const start = at + NUMBERS * NUMBER_BYTES;
    at = start + length;
    if (errno !== 0) return getSystemErrorName(-errno);
    // The version: device, inode, size, and the times of the last change of contents and of attributes.
    const version = numbers.slice(1, 6).join(" ");
    return { version, size, mode, uid, hasChanged: changed === 1, bytes: answer.subarray(start, at) };
  });
}

function checkFile(path: string, found: ReadResult, rule: FileRule = () => undefined): BootstrapFile {
  const unusable = pathProblem(path);
  if (unusable !== undefined) return { problem: unusable, version: "" };
  if (typeof found === "string") return { problem: readProblem(path, found), version: found };
  const problem = fileProblem(found) ?? rule(found);
  return problem === undefined ? found : { problem, version: found.version };
}

/**
 * The message for a file that cannot be read. It shows the path, truncated and escaped, so that an operator can find a
 * missing mount. The path is the value of a variable; no other message contains such a value.
 */
function readProblem(path: string, errno: string): string {
  const shown = /^[\x21-\x7e]+$/.test(path) ? path : JSON.stringify(path);
  const cut = shown.length > SHOWN_PATH_LENGTH ? `${shown.slice(0, SHOWN_PATH_LENGTH)}…` : shown;
  return `names ${cut}, which user ${process.getuid?.() ?? "unknown"} cannot read (${errno})`;
}

function versionOf(found: ReadResult): string {
  return typeof found === "string" ? found : found.version;
}

function pathProblem(path: string): string | undefined {
  if (!path.startsWith("/")) return "must be an absolute path";
  return path.includes("\0") ? "contains a NUL byte" : undefined;
}

function fileProblem({ mode, size, hasChanged, bytes }: FileState): string | undefined {
  if ((mode & constants.S_IFMT) !== constants.S_IFREG) return "does not name a regular file";
  if (size > FILE_LIMIT_BYTES) return "names a file of more than 1 MiB";
  // The file changed during the read, so some of the bytes may be old and others new.
  if (hasChanged) return "names a file that is being written";
  // Files in /proc report size 0 and may be endless, so no more is read than the size that fstat(2) reports.
  return bytes.length === 0 ? "names an empty file" : undefined;
}
