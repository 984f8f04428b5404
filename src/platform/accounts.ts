import { type BigIntStats, close, constants, fstat, open, read, stat } from "node:fs";
import { promisify } from "node:util";

import { type Accounts, AgentError } from "../domain/index.ts";
import type { Addon } from "../native/index.ts";

const LIMIT_BYTES: number = 4 * 1024 * 1024;
/** A file that changed more recently may change again without a new time stamp. */
const SETTLED_MS = 2_000;
const ABSENT: ReadonlySet<unknown> = new Set(["ENOENT", "ENOTDIR"]);

function unusable(path: string, problem: string, cause?: unknown): AgentError {
  return new AgentError("FAILED_PRECONDITION", "EXEC_BAD_USER", `${path} ${problem}`, { path }, cause);
}

// The workload waits for the first look at the users: node:fs/promises would take a millisecond to load.
const openFile = promisify(open);
const statFile: (fd: number, options: { bigint: true }) => Promise<BigIntStats> = promisify(fstat);
const readFrom = promisify(read);
const closeFile = promisify(close);
const statPath: (path: string, options: { bigint: true }) => Promise<BigIntStats> = promisify(stat);

/** A file's content, and the state of the file that it belongs to. */
interface Content {
  readonly bytes: Uint8Array;
  readonly state: BigIntStats;
}

/** Trusts nothing about the file, which is the image's: it may be missing, a FIFO without a writer, or endless. */
async function readRegularFile(path: string): Promise<Content> {
  const fd = await openFile(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  try {
    return await readOpened(path, fd);
  } finally {
    await closeFile(fd);
  }
}

async function readOpened(path: string, fd: number): Promise<Content> {
  const state = await statFile(fd, { bigint: true });
  if (!state.isFile()) throw unusable(path, "is not a regular file; user names cannot be looked up in it");
  const chunks: Uint8Array[] = [];
  let sizeBytes = 0;
  for (;;) {
    const { bytesRead, buffer } = await readFrom(fd, Buffer.allocUnsafe(64 * 1024), 0, 64 * 1024, null);
    if (bytesRead === 0) return { bytes: Buffer.concat(chunks, sizeBytes), state };
    sizeBytes += bytesRead;
    if (sizeBytes > LIMIT_BYTES) throw unusable(path, `is larger than ${LIMIT_BYTES} bytes; give the user as a number`);
    chunks.push(buffer.subarray(0, bytesRead));
  }
}

/** The part of the addon that reads a file's state from the kernel's memory. */
type CachedState = Pick<Addon, "cachedState">;

function isSameState(state: BigIntStats, [dev, ino, size, mtimeNs, ctimeNs]: readonly bigint[]): boolean {
  return (
    state.ino === ino &&
    state.dev === dev &&
    state.size === size &&
    state.ctimeNs === ctimeNs &&
    state.mtimeNs === mtimeNs
  );
}

/** One file of the database. Every command asks for it, so it is read again only when its inode has changed. */
class Database {
  readonly #path: string;
  readonly #kernel: CachedState;
  #known: Content | undefined;

  constructor(path: string, kernel: CachedState) {
    this.#path = path;
    this.#kernel = kernel;
  }

  /** What it was when it was read last, where the kernel can tell at once that nothing has changed. */
  unchanged(): Uint8Array | undefined {
    if (this.#known === undefined) return undefined;
    const cached = this.#kernel.cachedState(this.#path);
    return typeof cached !== "number" && isSameState(this.#known.state, cached) ? this.#known.bytes : undefined;
  }

  async read(): Promise<Uint8Array> {
    const known = this.#known;
    if (known !== undefined && (await this.#isUnchanged(known.state))) return known.bytes;
    this.#known = undefined;
    const content = await readRegularFile(this.#path);
    const ageMs = Date.now() - Number(content.state.ctimeMs);
    if (ageMs > SETTLED_MS) this.#known = content;
    return content.bytes;
  }

  /** By stat(2) on a thread, a twentieth of a small command's time: only where the kernel's memory does not tell. */
  async #isUnchanged(state: BigIntStats): Promise<boolean> {
    try {
      const { dev, ino, size, mtimeNs, ctimeNs } = await statPath(this.#path, { bigint: true });
      return isSameState(state, [dev, ino, size, mtimeNs, ctimeNs]);
    } catch {
      return false;
    }
  }
}

async function readDatabase(database: Database, path: string): Promise<Uint8Array> {
  try {
    return await database.read();
  } catch (error) {
    if (error instanceof AgentError) throw error;
    const code = error instanceof Error && "code" in error ? error.code : undefined;
    if (ABSENT.has(code)) return new Uint8Array();
    throw unusable(path, `cannot be read (${String(code)}); user names cannot be looked up in it`, error);
  }
}

/** The user database in the files of `folder`. Always current, as the workload may change them. */
export function fileAccounts(kernel: CachedState, folder: string = "/etc"): Accounts {
  const reader = (path: string): Accounts["passwd"] => {
    const database = new Database(path, kernel);
    return () => database.unchanged() ?? readDatabase(database, path);
  };
  return { passwd: reader(`${folder}/passwd`), group: reader(`${folder}/group`) };
}
