import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  FileTree,
  type ListRequestSchema,
  type TreeEntry as EntryMessage,
} from "../../../shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { checkOptions, wholeNumber } from "../arguments.ts";
import type { CallOptions, Channel } from "../grpc/channel.ts";
import { invalidOption } from "../errors/errors.ts";
import type { Names } from "../options.ts";
import { received } from "../grpc/received.ts";
import { type GuestPath, PLACE, placeOf, type PlaceOptions } from "./path.ts";
import { attributesOf, type FileAttributes, type FileType, typeOf } from "./stat.ts";

/** Options of `opendir`. */
export interface OpendirOptions extends PlaceOptions {
  /** Also list the directories below this directory; the same as `depth: Infinity`. Default: false. */
  readonly recursive?: boolean | undefined;
  /**
   * How many levels of directories to list. Infinity means all levels. Default: 1, which means only the entries of the
   * directory itself.
   */
  readonly depth?: number | undefined;
  /** Number of entries after which the listing ends. Default: Infinity. Both Infinity and 0 mean that there is no limit. */
  readonly maxEntries?: number | undefined;
  /** Descend into mount points. Default: false. */
  readonly crossMounts?: boolean | undefined;
}

/** The fields that every entry of a directory has. */
interface EntryHead {
  /** Path relative to the listed directory. Bytes that are not UTF-8 are replaced: see `rawName`. */
  readonly name: string;
  readonly rawName: Buffer;
  /** Why the entry cannot be read, such as "EACCES". For a directory, also why it is not listed completely. */
  readonly errno?: string;
  /** Whether the entry is a mount point. */
  readonly mountPoint: boolean;
}

/** An entry of a directory, with the attributes of the entry itself. */
export type ReadEntry = EntryHead & FileAttributes;

/**
 * An entry of a directory whose attributes could not be read, for the reason in `errno`. Of the attributes, only `type`
 * is set.
 */
export type UnreadEntry = EntryHead & { readonly type: FileType } & {
  readonly [Name in Exclude<keyof FileAttributes, "type">]?: undefined;
};

/**
 * An entry of a directory. Before you use the attributes, check that `size` is a number: if it is not, the attributes
 * could not be read. TypeScript requires this check, too.
 */
export type DirectoryEntry = ReadEntry | UnreadEntry;

/** The depth that is sent in place of Infinity. It is larger than the depth of any directory tree. */
const ALL_LEVELS = 2 ** 32 - 1;
export const OPENDIR: Names<OpendirOptions> = {
  ...PLACE,
  recursive: true,
  depth: true,
  maxEntries: true,
  crossMounts: true,
};

/**
 * The entries of a directory, in the order in which the agent sends them. Each directory comes directly before its own
 * entries. Each iteration makes a separate call.
 */
export class Listing implements AsyncIterable<DirectoryEntry> {
  readonly #channel: Channel;
  readonly #request: MessageInitShape<typeof ListRequestSchema>;
  readonly #options: CallOptions;
  #isTruncated = false;

  constructor(channel: Channel, path: GuestPath, options: OpendirOptions) {
    checkOptions("the options of opendir()", options, OPENDIR);
    const { recursive = false, depth = recursive ? Number.POSITIVE_INFINITY : 0, crossMounts = false } = options;
    const { maxEntries = Number.POSITIVE_INFINITY } = options;
    if (maxEntries !== Number.POSITIVE_INFINITY && (!Number.isSafeInteger(maxEntries) || maxEntries < 0))
      throw invalidOption("maxEntries", "maxEntries requires a whole number of 0 or more, or Infinity");
    const levels = depth === Number.POSITIVE_INFINITY ? ALL_LEVELS : wholeNumber(depth, "depth");
    const most = maxEntries === Number.POSITIVE_INFINITY ? 0n : BigInt(maxEntries);
    this.#channel = channel;
    this.#request = { ...placeOf(path, options), depth: levels, maxEntries: most, crossMounts };
    this.#options = options;
  }

  /** Whether the listing ended at `maxEntries` although there were more entries. */
  get truncated(): boolean {
    return this.#isTruncated;
  }

  [Symbol.asyncIterator](): AsyncIterableIterator<DirectoryEntry> {
    return received(this.#channel, FileTree.method.list, this.#request, this.#options, {
      decode: ({ entries, truncated }) => {
        this.#isTruncated = truncated;
        return entries.map(entryOf);
      },
    });
  }
}

function entryOf({ name, stat, errno, mountPoint }: EntryMessage): DirectoryEntry {
  const rawName = Buffer.from(name.buffer, name.byteOffset, name.length);
  const head = { name: rawName.toString(), rawName, mountPoint, ...(errno !== "" && { errno }) };
  // An entry whose attributes could not be read has only type and inode.
  if (stat?.mtime === undefined) return { ...head, type: typeOf(stat?.type ?? 0) };
  return { ...head, ...attributesOf(stat) };
}
