import { type BigIntStats, close, constants, fstat, open, read, stat } from "node:fs";
import { promisify } from "node:util";

import { type Accounts, AgentError } from "../domain/index.ts";
import { errnoOf } from "../../shared/errors.ts";
import type { Addon } from "../native/index.ts";

const LIMIT_BYTES: number = 4 * 1024 * 1024;
/**
 * The content of a file that changed less than this time ago is not cached. Timestamps are coarse, so the file may
 * change again without getting a new timestamp.
 */
const RECENT_NS = 2_000_000_000n;
const ABSENT: ReadonlySet<unknown> = new Set(["ENOENT", "ENOTDIR"]);

function unusable(path: string, problem: string, cause?: unknown): AgentError {
  return new AgentError("FAILED_PRECONDITION", "EXEC_BAD_USER", `${path} ${problem}`, { path }, cause);
}

// node:fs/promises is not used: loading it takes a millisecond, and the workload's start waits for the first user
// lookup.
const openFile = promisify(open);
const statFile: (fd: number, options: { bigint: true }) => Promise<BigIntStats> = promisify(fstat);
const readFrom = promisify(read);
const closeFile = promisify(close);
const statPath: (path: string, options: { bigint: true }) => Promise<BigIntStats> = promisify(stat);

/** Device, inode, size and times of a file. At least one of them differs after a change (Addon.cachedState). */
type State = readonly bigint[];

function stateOf({ dev, ino, size, mtimeNs, ctimeNs }: BigIntStats): State {
  return [dev, ino, size, mtimeNs, ctimeNs];
}

function isSame(one: State, other: State): boolean {
  return one.every((value, i) => value === other[i]);
}

/** The content of a file, with the state that the file had when it was read. */
interface Content {
  readonly bytes: Uint8Array;
  readonly state: State;
  readonly isSettled: boolean;
}

/**
 * Reads a file of the image. Never hangs: throws AgentError for files of other types, such as a FIFO, and for files
 * that are too large or never end.
 */
async function readRegularFile(path: string): Promise<Content> {
  const fd = await openFile(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  try {
    const stats = await statFile(fd, { bigint: true });
    if (!stats.isFile()) throw unusable(path, "is not a regular file; user names cannot be looked up in it");
    const bytes = await readToEnd(path, fd);
    const ageNs = BigInt(Date.now()) * 1_000_000n - stats.ctimeNs;
    return { bytes, state: stateOf(stats), isSettled: ageNs > RECENT_NS };
  } finally {
    await closeFile(fd);
  }
}

async function readToEnd(path: string, fd: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let sizeBytes = 0;
  for (;;) {
    const { bytesRead, buffer } = await readFrom(fd, Buffer.allocUnsafe(64 * 1024), 0, 64 * 1024, null);
    if (bytesRead === 0) return Buffer.concat(chunks, sizeBytes);
    sizeBytes += bytesRead;
    if (sizeBytes > LIMIT_BYTES) throw unusable(path, `is larger than ${LIMIT_BYTES} bytes; give the user as a number`);
    chunks.push(buffer.subarray(0, bytesRead));
  }
}

/** The addon function that reads a file's state only if the kernel has cached it, so that the call never blocks. */
type CachedState = Pick<Addon, "cachedState">;

/**
 * One file of the user database. Every command needs the file, so its content is cached, and read again only after the
 * file has changed.
 */
class Database {
  readonly #path: string;
  readonly #kernel: CachedState;
  #known: Content | undefined;

  constructor(path: string, kernel: CachedState) {
    this.#path = path;
    this.#kernel = kernel;
  }

  /**
   * Returns the content of the file. Synchronous if the kernel can confirm without I/O that the cached content is
   * current.
   */
  bytes(): Uint8Array | Promise<Uint8Array> {
    if (this.#known === undefined) return this.#read();
    const cached = this.#kernel.cachedState(this.#path);
    return typeof cached !== "number" && isSame(this.#known.state, cached) ? this.#known.bytes : this.#read();
  }

  async #read(): Promise<Uint8Array> {
    try {
      const known = this.#known;
      // The file is stat'ed on a thread only if the kernel has nothing cached: a stat on a thread for each lookup
      // raised the CPU time of a small command by 18 %.
      if (known !== undefined && isSame(known.state, stateOf(await statPath(this.#path, { bigint: true }))))
        return known.bytes;
      const content = await readRegularFile(this.#path);
      this.#known = content.isSettled ? content : undefined;
      return content.bytes;
    } catch (error) {
      if (error instanceof AgentError) throw error;
      const code = errnoOf(error);
      if (ABSENT.has(code)) return new Uint8Array();
      throw unusable(this.#path, `cannot be read (${String(code)}); user names cannot be looked up in it`, error);
    }
  }
}

/** The user database in `directory`. Each lookup returns current data, because the workload may change the files. */
export function fileAccounts(kernel: CachedState, directory: string = "/etc"): Accounts {
  const passwd = new Database(`${directory}/passwd`, kernel);
  const group = new Database(`${directory}/group`, kernel);
  return { passwd: () => passwd.bytes(), group: () => group.bytes() };
}
