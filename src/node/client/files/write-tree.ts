import { FieldWriter } from "../../../shared/field-writer.ts";
import { itemsBytes, type SentItem, writeItems } from "../../../shared/tree-items.ts";
import {
  FileTree,
  TreeSync,
  WriteTreeRequestSchema,
  type WriteTreeResponse,
} from "../../../shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { FileType } from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { type Hole, isHole, type Piece, withHoles } from "../../tar/index.ts";
import { checkOptions, wholeNumber } from "../arguments.ts";
import { cancelCall, type Channel, encoded } from "../channel.ts";
import { GuestError, invalidOption, unreadable } from "../errors.ts";
import type { Names } from "../options.ts";
import { deferred } from "../deferred.ts";
import { type GuestPath, pathBytes, PLACE, type PlaceOptions } from "./path.ts";
import { isServiceError, resultOf, timeOfSeconds, type TreeEntry, type TreeResult } from "./tree-entry.ts";
import { ANSWERED, sourceFailure, type UntilAnswered, untilAnswered } from "./write.ts";

/** Files up to here travel in the message of their item. */
const SMALL_BYTES = 64 * 1024;
/** Of a message with many items, and of one with a large file's bytes. */
const MESSAGE_BYTES = 256 * 1024;
const MESSAGE_ITEMS = 512;
/** Entries wait no longer than that for others to go with them. */
const LATE_MS = 50;
const NONE = new Uint8Array(0);

/** Options of `writeTree`. */
export interface WriteTreeOptions extends PlaceOptions {
  /** Make the folder, with missing ones above it. Default: false. */
  readonly parents?: boolean | undefined;
  /** Replace what is there, except for folders. Default: false, it counts as failed. */
  readonly overwrite?: boolean | undefined;
  /** Keep setuid, setgid and sticky bits. Default: false. */
  readonly specialBits?: boolean | undefined;
  /** Reject at the first entry that fails. Default: false, it is in the result. */
  readonly failFast?: boolean | undefined;
  /** "all": on the disk before the call resolves (default); "none": when the guest's kernel writes it. */
  readonly sync?: "all" | "none" | undefined;
  /** Called with what is done so far. */
  readonly onProgress?: ((done: { readonly entries: number; readonly bytes: number }) => void) | undefined;
}

/** Their names. */
export const WRITE_TREE: Names<WriteTreeOptions> = {
  ...PLACE,
  parents: true,
  overwrite: true,
  specialBits: true,
  failFast: true,
  sync: true,
  onProgress: true,
};

/**
 * Writes entries below a folder of the guest in one stream. Asks for the first entry once the agent has the folder
 * open, so that a refusal (UNIMPLEMENTED by an older agent) leaves them untouched. Rejects with GuestError; where the
 * entries failed, their error is the cause.
 */
export async function writeTree(
  channel: Channel,
  path: GuestPath,
  entries: TreeEntries,
  options: WriteTreeOptions = {},
): Promise<TreeResult> {
  checkOptions("the options of writeTree", options, WRITE_TREE);
  const {
    parents = false,
    overwrite = false,
    specialBits = false,
    failFast = false,
    sync = "all",
    onProgress,
  } = options;
  const call = channel.bidiStream(FileTree.method.writeTree, options);
  const answers = (call as AsyncIterable<WriteTreeResponse>)[Symbol.asyncIterator]();
  const answered = deferred<void>();
  const orAnswer = untilAnswered(answered.promise);
  // A call that has ended takes no more, and says nothing of what it did not take.
  const write: Write = (message) => orAnswer(new Promise((resolve) => call.write(message, () => resolve())));
  const place = {
    path: pathBytes(path),
    beneath: pathBytes(options.beneath ?? ""),
    noSymlinks: options.noSymlinks ?? false,
  };
  let result: WriteTreeResponse | undefined;
  const take = (answer: WriteTreeResponse): void => {
    result = answer;
    onProgress?.({ entries: Number(answer.items), bytes: Number(answer.bytesWritten) });
  };
  const follow = async (): Promise<void> => {
    for (let next = await answers.next(); next.done !== true; next = await answers.next()) take(next.value);
  };
  try {
    const value = {
      ...place,
      parents,
      overwrite,
      specialBits,
      failFast,
      sync: sync === "all" ? TreeSync.ALL : TreeSync.NONE,
    };
    await write(encoded(WriteTreeRequestSchema, { part: { case: "header", value } }));
    const first = await answers.next();
    if (first.done !== true) take(first.value);
    const followed = follow().finally(() => answered.resolve());
    // A refusal ends the sending; it is reported below.
    followed.catch(() => undefined);
    await send(entries, write, orAnswer, result?.holes ?? false).catch((error: unknown) => {
      throw error instanceof GuestError ? error : sourceFailure("the entries", error);
    });
    call.end();
    await followed;
  } catch (cause) {
    cancelCall(call);
    if (cause instanceof GuestError || !isServiceError(cause)) throw cause;
    throw await channel.failure(cause, FileTree.method.writeTree, options.signal);
  }
  if (result?.done !== true) throw unreadable("has no result");
  return resultOf(result.items, result.failed, result.failures);
}

/** Entries of a tree: those that are at hand take less CPU time than those of a stream. */
export type TreeEntries = Iterable<TreeEntry> | AsyncIterable<TreeEntry>;

type Write = (message: Buffer) => Promise<void | typeof ANSWERED>;

/** The content of a small file. It may have grown, but not without end. */
async function wholeOf({ name, size, content }: TreeEntry): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of content) {
    bytes += piece.length;
    if (bytes > SMALL_BYTES)
      throw invalidOption(
        "entries",
        `${JSON.stringify(name.toString())} has more bytes than its size, ${size}; give its size, or end its content there`,
      );
    pieces.push(piece);
  }
  return pieces.length === 1 && pieces[0] !== undefined ? pieces[0] : Buffer.concat(pieces);
}

/** Sends the entries until the agent has answered for good, even while they have nothing to give. */
async function send(entries: TreeEntries, write: Write, orAnswer: UntilAnswered, takesHoles: boolean): Promise<void> {
  const iterator = Symbol.iterator in entries ? entries[Symbol.iterator]() : entries[Symbol.asyncIterator]();
  let isAnswered = false;
  let items: SentItem[] = [];
  let bytes = 0;
  let late: NodeJS.Timeout | undefined;
  let writing: ReturnType<Write> = Promise.resolve();
  const flush = async (): Promise<void> => {
    clearTimeout(late);
    late = undefined;
    const sent = items;
    items = [];
    bytes = 0;
    if (sent.length === 0) return;
    // One is on its way while the next is gathered.
    const before = writing;
    writing = write(itemsMessage(sent));
    isAnswered = (await before) === ANSWERED;
  };
  for (;;) {
    // What is there is not held up by a source that gives no more, such as an archive from a slow pipe.
    const step = iterator.next();
    if (step instanceof Promise && items.length > 0) late ??= setTimeout(() => void flush(), LATE_MS);
    const next = step instanceof Promise ? await orAnswer(step) : step;
    if (next === ANSWERED || isAnswered) {
      clearTimeout(late);
      // Not awaited: `return` of a generator settles only when its pending step has.
      Promise.resolve(iterator.return?.()).catch(() => undefined);
      return;
    }
    if (next.done === true) break;
    const entry = next.value;
    const isFile = entry.type === "file";
    const isSmall = !isFile || entry.size <= SMALL_BYTES;
    const data = isFile && isSmall ? (entry.readAll?.() ?? (await wholeOf(entry))) : NONE;
    if (entry.name.length === 0) continue;
    items.push(itemOf(entry, data, isFile && !isSmall ? entry.size : data.length));
    bytes += entry.name.length + data.length;
    if (!isSmall) {
      await flush();
      for await (const piece of piecesOf(entry, takesHoles)) {
        if (isHole(piece)) isAnswered = (await write(holeMessage(piece))) === ANSWERED;
        else
          for (let at = 0; at < piece.length && !isAnswered; at += MESSAGE_BYTES)
            isAnswered = (await write(dataMessage(piece.subarray(at, at + MESSAGE_BYTES)))) === ANSWERED;
        if (isAnswered) break;
      }
    } else if (bytes >= MESSAGE_BYTES - SMALL_BYTES || items.length >= MESSAGE_ITEMS) await flush();
  }
  await flush();
  await writing;
}

/** A large file's content. An agent before 0.3.0 takes no holes. */
function piecesOf({ content, pieces, sparse }: TreeEntry, takesHoles: boolean): AsyncIterable<Piece> {
  return takesHoles && sparse === true ? (pieces ?? withHoles(content)) : content;
}

/** Bytes of a field beside its value, at most. */
const FIELD_BYTES = 16;
const FIELD = WriteTreeRequestSchema.field;

function itemsMessage(items: readonly SentItem[]): Buffer {
  const sizeBytes = itemsBytes(items);
  const writer = new FieldWriter(sizeBytes);
  writeItems(writer, FIELD.items.number, items, sizeBytes);
  return writer.written();
}

function dataMessage(bytes: Uint8Array): Buffer {
  const writer = new FieldWriter(FIELD_BYTES + bytes.length);
  writer.bytes(FIELD.data.number, bytes);
  return writer.written();
}

function holeMessage({ holeBytes }: Hole): Buffer {
  const writer = new FieldWriter(FIELD_BYTES);
  writer.number(FIELD.hole.number, holeBytes);
  return writer.written();
}

function itemOf(entry: TreeEntry, data: Uint8Array, size: number): SentItem {
  const { type, name, mode, uid, gid, mtimeSeconds, sparse = false } = entry;
  const linkTarget = type === "symlink" || type === "hard-link" ? entry.linkTarget : NONE;
  // Programs without types may give anything, and what is sent is not checked any more.
  const areBytes = [name, linkTarget, data].every((bytes) => bytes instanceof Uint8Array);
  if (!areBytes || TYPES[type] === undefined || !Number.isSafeInteger(size) || !Number.isFinite(mtimeSeconds))
    throw invalidOption("entries", `${JSON.stringify(String(name))} has a field of another type than TreeEntry`);
  return {
    path: name,
    type: TYPES[type],
    mode: mode & 0o7777,
    uid: uid === undefined ? uid : wholeNumber(uid, "uid"),
    gid: gid === undefined ? gid : wholeNumber(gid, "gid"),
    mtime: timeOfSeconds(mtimeSeconds),
    size,
    data,
    linkTarget,
    sparse,
  };
}

const TYPES = {
  file: FileType.REGULAR,
  "hard-link": FileType.REGULAR,
  directory: FileType.DIRECTORY,
  symlink: FileType.SYMLINK,
} as const;
