import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  FileTree,
  type TreeItemSchema,
  TreeSync,
  WriteTreeRequestSchema,
  type WriteTreeResponse,
} from "../../../shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { FileType } from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { isHole, type Piece, withHoles } from "../../tar/index.ts";
import { checkOptions } from "../arguments.ts";
import { cancelCall, type Channel } from "../channel.ts";
import { GuestError, invalidOption, unreadable } from "../errors.ts";
import type { Names } from "../options.ts";
import { deferred } from "../deferred.ts";
import { type GuestPath, pathBytes, PLACE, type PlaceOptions } from "./path.ts";
import { isServiceError, resultOf, timeOfSeconds, type TreeEntry, type TreeResult } from "./tree-entry.ts";
import { ANSWERED, type UntilAnswered, untilAnswered } from "./write.ts";

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
 * open, so that a refusal (UNIMPLEMENTED by an older agent) leaves them untouched. Rejects with GuestError, or the
 * entries' own error.
 */
export async function writeTree(
  channel: Channel,
  path: GuestPath,
  entries: AsyncIterable<TreeEntry>,
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
  const write: Write = (part) =>
    orAnswer(new Promise((resolve) => call.write(create(WriteTreeRequestSchema, { part }), () => resolve())));
  const place = {
    path: pathBytes(path),
    beneath: pathBytes(options.beneath ?? ""),
    noSymlinks: options.noSymlinks ?? false,
  };
  let result: WriteTreeResponse | undefined;
  const take = (answer: WriteTreeResponse): void => {
    result = answer;
    onProgress?.({ entries: Number(answer.items), bytes: Number(answer.bytes) });
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
    await write({ case: "header", value });
    const first = await answers.next();
    if (first.done !== true) take(first.value);
    const followed = follow().finally(() => answered.resolve());
    // A refusal ends the sending; it is reported below.
    followed.catch(() => undefined);
    await send(entries, write, orAnswer, result?.holes ?? false);
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

type Write = (
  part: NonNullable<MessageInitShape<typeof WriteTreeRequestSchema>["part"]>,
) => Promise<void | typeof ANSWERED>;

/** The content of a small file. It may have grown, but not without end. */
async function wholeOf({ name, sizeBytes, content }: TreeEntry): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of content) {
    bytes += piece.length;
    if (bytes > SMALL_BYTES)
      throw invalidOption(
        "entries",
        `${JSON.stringify(name.toString())} has more bytes than its sizeBytes, ${sizeBytes}; give its size, or end its content there`,
      );
    pieces.push(piece);
  }
  return pieces.length === 1 && pieces[0] !== undefined ? pieces[0] : Buffer.concat(pieces);
}

/** Sends the entries until the agent has answered for good, even while they have nothing to give. */
async function send(
  entries: AsyncIterable<TreeEntry>,
  write: Write,
  orAnswer: UntilAnswered,
  takesHoles: boolean,
): Promise<void> {
  const iterator = entries[Symbol.asyncIterator]();
  let isAnswered = false;
  let items: MessageInitShape<typeof TreeItemSchema>[] = [];
  let bytes = 0;
  let late: NodeJS.Timeout | undefined;
  const flush = async (): Promise<void> => {
    clearTimeout(late);
    late = undefined;
    const value = { items };
    items = [];
    bytes = 0;
    if (value.items.length > 0) isAnswered = (await write({ case: "items", value })) === ANSWERED;
  };
  for (;;) {
    // What is there is not held up by a source that gives no more, such as an archive from a slow pipe.
    if (items.length > 0) late ??= setTimeout(() => void flush(), LATE_MS);
    const next = await orAnswer(iterator.next());
    if (next === ANSWERED || isAnswered) {
      clearTimeout(late);
      // Not awaited: `return` of a generator settles only when its pending step has.
      iterator.return?.().catch(() => undefined);
      return;
    }
    if (next.done === true) break;
    const entry = next.value;
    const isFile = entry.type === "file";
    const isSmall = !isFile || entry.sizeBytes <= SMALL_BYTES;
    const data = isFile && isSmall ? await wholeOf(entry) : NONE;
    if (entry.name.length === 0) continue;
    items.push(itemOf(entry, data, isFile && !isSmall ? entry.sizeBytes : data.length));
    bytes += entry.name.length + data.length;
    if (!isSmall) {
      await flush();
      for await (const piece of piecesOf(entry, takesHoles)) {
        if (isHole(piece)) isAnswered = (await write({ case: "hole", value: BigInt(piece.holeBytes) })) === ANSWERED;
        else
          for (let at = 0; at < piece.length && !isAnswered; at += MESSAGE_BYTES)
            isAnswered = (await write({ case: "data", value: piece.subarray(at, at + MESSAGE_BYTES) })) === ANSWERED;
        if (isAnswered) break;
      }
    } else if (bytes >= MESSAGE_BYTES - SMALL_BYTES || items.length >= MESSAGE_ITEMS) await flush();
  }
  await flush();
}

/** A large file's content. An agent before 0.3.0 takes no holes. */
function piecesOf({ content, pieces, sparse }: TreeEntry, takesHoles: boolean): AsyncIterable<Piece> {
  return takesHoles && sparse === true ? (pieces ?? withHoles(content)) : content;
}

function itemOf(entry: TreeEntry, data: Uint8Array, sizeBytes: number): MessageInitShape<typeof TreeItemSchema> {
  const { type, name, linkName, mode, uid, gid, modifiedSeconds, sparse = false } = entry;
  const { seconds, nanos } = timeOfSeconds(modifiedSeconds);
  return {
    path: name,
    type: TYPES[type],
    mode: mode & 0o7777,
    ...(uid !== undefined && { uid }),
    ...(gid !== undefined && { gid }),
    mtime: { seconds: BigInt(seconds), nanos },
    size: BigInt(sizeBytes),
    data,
    linkTarget: type === "symlink" || type === "hard-link" ? linkName : NONE,
    sparse,
  };
}

const TYPES = {
  file: FileType.REGULAR,
  "hard-link": FileType.REGULAR,
  directory: FileType.DIRECTORY,
  symlink: FileType.SYMLINK,
} as const;
