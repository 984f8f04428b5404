import { messageOf } from "../../../shared/errors.ts";
import {
  FileTree,
  type LeftEntry as FailureMessage,
  type ReadTreeResponse,
  type ReadTreeResult,
  type TreeItem,
} from "../../../shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { FileType } from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { GuestAgent } from "../../../shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import {
  becameShorter,
  EntryError,
  entryErrorOf,
  isCleanName,
  partsOf,
  type Piece,
  secondsNotBefore,
  withZeros,
} from "../../tar/index.ts";
import { checkOptions } from "../arguments.ts";
import { type CallOptions, cancelCall, type Channel } from "../grpc/channel.ts";
import { failure, type GuestError, unreadable } from "../errors/errors.ts";
import type { Names } from "../options.ts";
import { attributesOf } from "./stat.ts";
import { type LinkedGuest, withFollowedLinks } from "./followed-links.ts";
import { type GuestPath, pathBytes, pathFields, PLACE, type PlaceOptions } from "./path.ts";
import { readPieces } from "./read.ts";
import { TimeLimit } from "../time-limit.ts";
import {
  bufferOf,
  isServiceError,
  type LeftEntry,
  leftOf,
  resultOf,
  type ArchiveEntry,
  type TreeEntry,
  type TreeResult,
} from "./tree-entry.ts";
import { treeEntryOf } from "./tree-shape.ts";

const METHOD = FileTree.method.readTree;
const NS_PER_SECOND = 1_000_000_000n;
const MAX_SIZE_BYTES = BigInt(Number.MAX_SAFE_INTEGER);

/** Options of `readTree`. */
export interface ReadTreeOptions extends PlaceOptions {
  /** Descend into mount points below the directory. Default: false. */
  readonly crossMounts?: boolean | undefined;
  /**
   * Report each further name of a file that has several names as an entry of the type "hard-link". Default: false, so
   * that each name is reported as a separate file. This option has an effect only with `crossMounts`: without
   * `crossMounts`, further names are always reported as "hard-link". With `crossMounts`, older agents always report
   * separate files.
   */
  readonly hardLinks?: boolean | undefined;
  /**
   * Yield the target of each symbolic link in place of the link. Default: false. `onFailure` is called for a broken
   * link ("ENOENT") and for a link to a directory that contains the link ("ELOOP").
   */
  readonly followLinks?: boolean | undefined;
  /**
   * Called for each entry that cannot be read, as soon as the agent reports it. The first 100 failed entries are also
   * in `result`. Devices, FIFOs and sockets are reported with "EOPNOTSUPP". Older agents report at most 100 entries,
   * and only at the end.
   */
  readonly onFailure?: ((failure: LeftEntry) => void) | undefined;
}

const READ: Names<ReadTreeOptions> = {
  ...PLACE,
  crossMounts: true,
  hardLinks: true,
  followLinks: true,
  onFailure: true,
};

type Part = NonNullable<ReadTreeResponse["part"]>;

/**
 * The entries of a guest's directory and their content in one stream, as `readTree` yields them. Can be iterated only
 * once; leaving the loop cancels the call. If a file became shorter or cannot be read to its end, its content first
 * yields the bytes that could be read, and then throws GuestError (FILE_CHANGED). The caller can nevertheless continue
 * with the next entry.
 */
export class TreeReading implements AsyncIterable<TreeEntry> {
  readonly #archive: ArchiveReading;

  constructor(archive: ArchiveReading) {
    this.#archive = archive;
  }

  /** Result of reading the whole tree; undefined until the end. */
  get result(): TreeResult | undefined {
    return this.#archive.result;
  }

  /**
   * Number of failed entries for which `onFailure` was not called, because older agents name only the first 100. The
   * number is 0 until the whole tree was read.
   */
  get unnamed(): number {
    return this.#archive.unnamed;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<TreeEntry, void, undefined> {
    for await (const entry of this.#archive) yield treeEntryOf(entry);
  }
}

/** The entries of `readTree` as archive entries, which `download` uses. */
export class ArchiveReading implements AsyncIterable<ArchiveEntry> {
  readonly #channel: Channel;
  readonly #path: GuestPath;
  readonly #options: ReadTreeOptions;
  #result: TreeResult | undefined;
  /** A message that arrived while bytes of the current file were missing. It belongs to the next entry. */
  #held: Part | undefined;
  #reported = 0;

  constructor(channel: Channel, path: GuestPath, options: ReadTreeOptions = {}) {
    checkOptions("the options of readTree()", options, READ);
    this.#channel = channel;
    this.#path = path;
    this.#options = options;
  }

  get result(): TreeResult | undefined {
    return this.#result;
  }

  get unnamed(): number {
    return Math.max(0, (this.#result?.failed ?? 0) - this.#reported);
  }

  [Symbol.asyncIterator](): AsyncGenerator<ArchiveEntry, void, undefined> {
    return this.#options.followLinks === true ? this.#followed() : this.#entries();
  }

  #followed(): AsyncGenerator<ArchiveEntry, void, undefined> {
    const { signal, requestTimeoutMs, crossMounts, hardLinks, onFailure } = this.#options;
    const channel = this.#channel;
    const limit = new TimeLimit(requestTimeoutMs);
    const call = (): CallOptions => ({ signal, requestTimeoutMs: limit.left() });
    const guest: LinkedGuest = {
      stat: async (path, options) =>
        attributesOf(await channel.question(GuestAgent.method.statPath, pathFields(path), options)),
      readPieces: (path, options) => readPieces(channel, path, options),
      readTree: (path, fail) =>
        new ArchiveReading(channel, path, { ...call(), crossMounts, hardLinks, onFailure: fail }),
    };
    const fail = ({ rawName, errno }: Pick<LeftEntry, "rawName" | "errno">): void =>
      onFailure?.({ name: rawName.toString(), rawName, errno });
    return withFollowedLinks(guest, bufferOf(pathBytes(this.#path)), this.#entries(), { call, fail });
  }

  async *#entries(): AsyncGenerator<ArchiveEntry, void, undefined> {
    const { beneath = "", noSymlinks = false, crossMounts = false, hardLinks = false, ...rest } = this.#options;
    const { onFailure: _, followLinks: _1, ...options } = rest;
    const where = { path: pathBytes(this.#path), beneath: pathBytes(beneath), noSymlinks, crossMounts };
    const request = { ...where, holes: true, streamFailures: true, hardLinks };
    const call = this.#channel.serverStream(METHOD, request, options);
    const messages = (call as AsyncIterable<ReadTreeResponse>)[Symbol.asyncIterator]();
    const pull = async (): Promise<Part | undefined> => {
      try {
        const next = await messages.next();
        return next.done === true ? undefined : next.value.part;
      } catch (cause) {
        throw isServiceError(cause) ? await this.#channel.failure(cause, METHOD, options.signal) : cause;
      }
    };
    try {
      for (let part = await pull(); part !== undefined; part = this.#taken() ?? (await pull())) {
        if (part.case === "result") {
          this.#end(part.value);
          return;
        }
        if (part.case === "data" || part.case === "hole") throw untrue("file data without a file");
        if (part.case === "failures") this.#report(part.value.entries);
        if (part.case !== "items") continue;
        for (const item of part.value.items) {
          const pieces = this.#pieces(item, pull);
          const isWhole = checkedRest(item) === 0;
          yield entryOf(item, pieces, isWhole);
          if (!isWhole) await skipRest(pieces);
        }
      }
      throw unreadable("has no result");
    } finally {
      cancelCall(call);
    }
  }

  #taken(): Part | undefined {
    const held = this.#held;
    this.#held = undefined;
    return held;
  }

  async *#pieces(item: TreeItem, pull: () => Promise<Part | undefined>): AsyncGenerator<Piece> {
    let leftBytes = restOf(item, Number(item.size), item.data.length);
    if (item.data.length > 0) yield bufferOf(item.data);
    while (leftBytes > 0) {
      const part = await pull();
      if (part?.case === "data") {
        leftBytes = restOf(item, leftBytes, part.value.length);
        yield bufferOf(part.value);
      } else if (part?.case === "hole") {
        const holeBytes = Number(part.value);
        leftBytes = restOf(item, leftBytes, holeBytes);
        yield { holeBytes };
      } else if (part?.case === "failures") {
        // Do not report a failure of the file that is being read: its reader gets the error that is thrown below.
        const own = part.value.entries.find(({ name }) => bufferOf(name).equals(item.path));
        this.#report(part.value.entries.filter((failed) => failed !== own));
        if (own === undefined) continue;
        this.#reported += 1;
        throw cutOff(item, own.errno);
      } else {
        this.#held = part;
        throw cutOff(item);
      }
    }
  }

  #report(failures: readonly FailureMessage[]): void {
    for (const failed of failures) {
      this.#reported += 1;
      this.#options.onFailure?.(leftOf(failed));
    }
  }

  #end({ items, failed, failures }: ReadTreeResult): void {
    // An agent before 0.4.0 does not stream failures. It lists them only in its result, so report them now.
    if (this.#reported === 0) this.#report(failures);
    this.#result = resultOf(items, failed, failures);
  }
}

/** Accepts only clean relative names, as the agent sends them. Throws GuestError for others. */
function checkName(item: TreeItem, path: Uint8Array): void {
  const name = bufferOf(path);
  if (isCleanName(name)) return;
  try {
    partsOf(name);
  } catch (error) {
    throw failure("DATA_LOSS", "ANSWER_UNREADABLE", messageOf(error));
  }
  throw untrue("an empty part in the name", item);
}

/**
 * Returns how many bytes of a file will follow the message with its attributes. Throws GuestError if the message is
 * invalid.
 */
function checkedRest(item: TreeItem): number {
  checkName(item, item.path);
  if (item.type === FileType.REGULAR && item.linkTarget.length > 0) checkName(item, item.linkTarget);
  if (item.size > MAX_SIZE_BYTES) throw untrue(`the impossible size ${item.size}`, item);
  return restOf(item, Number(item.size), item.data.length);
}

/** Skips the content that the caller has not read, because in the stream it comes before the next entry. */
async function skipRest(pieces: AsyncGenerator<Piece>): Promise<void> {
  try {
    while ((await pieces.next()).done !== true);
  } catch (error) {
    // The caller did not read this content, so it does not matter that some of it is missing.
    if (entryErrorOf(error) === undefined) throw error;
  }
}

/** Creates the error of a file whose remaining bytes are missing. */
function cutOff(item: TreeItem, errno = "ESTALE"): GuestError {
  const name = bufferOf(item.path).toString();
  const cause =
    errno === "ESTALE" ? becameShorter(name) : new EntryError(errno, `${name} could not be read to its end: ${errno}`);
  return failure("ABORTED", "FILE_CHANGED", cause.message, cause);
}

function entryOf(
  { path, type, linkTarget, mode, uid, gid, mtime, size, sparse, data }: TreeItem,
  pieces: AsyncIterable<Piece>,
  isWhole: boolean,
): ArchiveEntry {
  const mtimeNs = (mtime?.seconds ?? 0n) * NS_PER_SECOND + BigInt(mtime?.nanos ?? 0);
  return {
    type: typeOf(type, linkTarget.length > 0),
    name: bufferOf(path),
    linkTarget: bufferOf(linkTarget),
    mode: mode ?? 0,
    uid,
    gid,
    mtimeSeconds: secondsNotBefore(mtimeNs),
    mtimeNs,
    size: Number(size),
    sparse,
    // Create the generator here, not in a getter: defining a getter would take 2 µs for each entry, and most callers
    // read the content anyway.
    content: withZeros(pieces),
    pieces,
    readAll: isWhole ? () => bufferOf(data) : undefined,
  };
}

function typeOf(type: FileType, hasTarget: boolean): ArchiveEntry["type"] {
  if (type === FileType.REGULAR) return hasTarget ? "hard-link" : "file";
  if (type === FileType.SYMLINK) return "symlink";
  if (type === FileType.DIRECTORY) return "directory";
  throw untrue(`an entry of the unknown type ${type}`);
}

function restOf(item: TreeItem, leftBytes: number, bytes: number): number {
  if (bytes > leftBytes) throw untrue(`more than the declared ${item.size} bytes`, item);
  return leftBytes - bytes;
}

/**
 * Creates the error for an answer that a correct agent never sends. Hostile code in the sandbox may have replaced the
 * agent.
 */
function untrue(what: string, item?: TreeItem): GuestError {
  const of = item === undefined ? "" : ` of ${JSON.stringify(bufferOf(item.path).toString())}`;
  const message = `invalid answer from the sandbox: it has ${what}${of}`;
  return failure("DATA_LOSS", "ANSWER_UNREADABLE", message);
}
