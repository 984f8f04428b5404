import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  FileTree,
  type ListRequestSchema,
  type TreeEntry as EntryMessage,
} from "../../../shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { FileType } from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { checkOptions, wholeNumber } from "../arguments.ts";
import type { CallOptions, Channel } from "../channel.ts";
import { invalidOption, unreadable } from "../errors.ts";
import { type KeptOptions, redialOf } from "../exec/keep.ts";
import type { ConnectOptions } from "../link/link.ts";
import { openChannel } from "../link/open.ts";
import type { Names } from "../options.ts";
import { received } from "../received.ts";
import { attributesOf, type PathAttributes } from "./attributes.ts";
import { type GuestPath, pathBytes, PLACE, placeOf, type PlaceOptions, timeField } from "./path.ts";
import { type ReadTreeOptions, TreeReading } from "./read-tree.ts";
import { type LeftEntry, leftOf, type TreeResult } from "./tree-entry.ts";
import type { TreeEntries } from "./tree-sender.ts";
import { type DirectoryEvent, watchDirectory, type WatchDirectoryOptions, type WatchParts } from "./watch.ts";
import { writeTree, type WriteTreeOptions } from "./write-tree.ts";

/** Options for the owner of a new entry. */
interface OwnerOptions extends PlaceOptions {
  /** Owner number. Default: the workload's user. */
  readonly uid?: number | undefined;
  /** Group number. Default: the workload's group; for a directory in a setgid directory the group of that directory. */
  readonly gid?: number | undefined;
}

/** Options of `list`. */
export interface ListOptions extends PlaceOptions {
  /** Levels of directories to list; Infinity: all. Default: 1, the entries of the directory itself. */
  readonly depth?: number | undefined;
  /** Number of entries after which the listing ends. Default: no limit. */
  readonly maxEntries?: number | undefined;
  /** Descend into mount points. Default: false. */
  readonly crossMounts?: boolean | undefined;
}

/** Options of `mkdir`. */
export interface MkdirOptions extends OwnerOptions {
  /** Create missing parent directories. Default: false. */
  readonly parents?: boolean | undefined;
  /** Permission bits. Default: 0o755. */
  readonly mode?: number | undefined;
  /** Fail with ALREADY_EXISTS if the path exists, even as a directory. Default: false. */
  readonly exclusive?: boolean | undefined;
}

/** Options of `symlink`. */
export type SymlinkOptions = OwnerOptions;

/** Options of `remove`. */
export interface RemoveOptions extends PlaceOptions {
  /** Remove a directory with everything in it. Default: false. */
  readonly recursive?: boolean | undefined;
}

/** Options of `rename`. */
export interface RenameOptions extends PlaceOptions {
  /** Fail with ALREADY_EXISTS instead of replacing an existing entry. Default: false. */
  readonly exclusive?: boolean | undefined;
}

/** Options of `setAttributes`. */
export interface SetAttributesOptions extends PlaceOptions {
  /** Follow a symbolic link at the end of the path. Default: false, so that the link itself is changed. */
  readonly follow?: boolean | undefined;
}

/** Attributes to set; undefined ones stay unchanged. */
export interface NewAttributes {
  /** Permission bits, at most 0o7777. */
  readonly mode?: number | undefined;
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
  /** Modification time. */
  readonly mtime?: Date | undefined;
  /** Nanoseconds within the second of `mtime`. Default: those of the Date. */
  readonly mtimeNanos?: number | undefined;
}

/** An entry of a directory. */
export interface ListEntry {
  /** Path relative to the listed directory. Bytes that are not UTF-8 are replaced: see `rawName`. */
  readonly name: string;
  readonly rawName: Buffer;
  /** `FileType.UNSPECIFIED` if the type is unknown. */
  readonly type: FileType;
  /**
   * Attributes of the entry itself, with the target if it is a symbolic link. Undefined if they could not be read; then
   * `errno` says why.
   */
  readonly attributes?: PathAttributes;
  /** Why the entry cannot be read, or why the directory is not listed completely, such as "EACCES". */
  readonly errno?: string;
  /** Whether the entry is a mount point. */
  readonly mountPoint: boolean;
}

/** Result of `remove`. */
export interface RemoveResult {
  readonly removed: number;
  /**
   * Number of entries that could not be removed, not counting the directories that contain them. 0: everything was
   * removed.
   */
  readonly left: number;
  /** The first 100 entries that could not be removed. */
  readonly leftEntries: readonly LeftEntry[];
}

const OWNER: Names<OwnerOptions> = { ...PLACE, uid: true, gid: true };
/** More levels than any tree has. */
const ALL_LEVELS = 2 ** 32 - 1;
const LIST: Names<ListOptions> = { ...PLACE, depth: true, maxEntries: true, crossMounts: true };
const MKDIR: Names<MkdirOptions> = { ...OWNER, parents: true, mode: true, exclusive: true };
const REMOVE: Names<RemoveOptions> = { ...PLACE, recursive: true };
const RENAME: Names<RenameOptions> = { ...PLACE, exclusive: true };
const SET: Names<SetAttributesOptions> = { ...PLACE, follow: true };
const ATTRIBUTES: Names<NewAttributes> = { mode: true, uid: true, gid: true, mtime: true, mtimeNanos: true };

/**
 * The entries of a directory in the agent's order: each directory directly before its own entries. Each iteration makes
 * a call.
 */
export class Listing implements AsyncIterable<ListEntry> {
  readonly #channel: Channel;
  readonly #request: MessageInitShape<typeof ListRequestSchema>;
  readonly #options: CallOptions;
  #isTruncated = false;

  constructor(channel: Channel, path: GuestPath, options: ListOptions) {
    checkOptions("the options of list", options, LIST);
    const { depth = 0, maxEntries = 0, crossMounts = false } = options;
    if (!Number.isSafeInteger(maxEntries) || maxEntries < 0)
      throw invalidOption("maxEntries", "maxEntries requires a whole number from 0 up");
    const levels = depth === Number.POSITIVE_INFINITY ? ALL_LEVELS : wholeNumber(depth, "depth");
    const bounds = { depth: levels, maxEntries: BigInt(maxEntries), crossMounts };
    this.#channel = channel;
    this.#request = { ...placeOf(path, options), ...bounds };
    this.#options = options;
  }

  /** Whether the listing ended at `maxEntries` although there were more entries. */
  get truncated(): boolean {
    return this.#isTruncated;
  }

  [Symbol.asyncIterator](): AsyncIterableIterator<ListEntry> {
    return received(this.#channel, FileTree.method.list, this.#request, this.#options, {
      decode: ({ entries, truncated }) => {
        this.#isTruncated = truncated;
        return entries.map(entryOf);
      },
    });
  }
}

/** The calls of FileTree and their options. Each rejects with GuestError. */
export class FolderClient {
  readonly #channel: Channel;
  readonly #connectOptions: ConnectOptions;

  constructor(channel: Channel, connectOptions: ConnectOptions) {
    this.#channel = channel;
    this.#connectOptions = connectOptions;
  }

  /** The channel for calls that outlive their connection, and how to reconnect. */
  protected redialled(options: Pick<KeptOptions, "resume">): WatchParts {
    const connectOptions = redialOf(options);
    const dial = async (): Promise<Channel> => openChannel((await connectOptions?.()) ?? this.#connectOptions);
    return { channel: this.#channel, dial, alwaysDials: connectOptions !== undefined };
  }

  /**
   * Reports changes in a directory until the caller leaves the loop. The first event is `ready`. After a lost
   * connection, such as after a standby, the watch restarts, with the event `rescan`.
   */
  watchDirectory(
    path: GuestPath,
    options: WatchDirectoryOptions = {},
  ): AsyncIterableIterator<DirectoryEvent, undefined, undefined> {
    return watchDirectory(this.redialled(options), path, options);
  }

  /**
   * Lists the entries of a directory as they arrive, even millions. The call starts when the caller begins to iterate;
   * leaving the loop cancels it.
   */
  list(path: GuestPath, options: ListOptions = {}): Listing {
    return new Listing(this.#channel, path, options);
  }

  /** Creates a directory. Resolves with false if it exists already. */
  async mkdir(path: GuestPath, options: MkdirOptions = {}): Promise<boolean> {
    checkOptions("the options of mkdir", options, MKDIR);
    const { parents = false, exclusive = false, uid, gid, mode } = options;
    const request = { ...placeOf(path, options), ...numbers({ uid, gid, mode }), parents, exclusive };
    return (await this.#channel.unary(FileTree.method.makeFolder, request, options)).created;
  }

  /** Creates a symbolic link. The target need not exist. The parameters are in the order of ln(1) and node:fs. */
  async symlink(target: GuestPath, path: GuestPath, options: SymlinkOptions = {}): Promise<void> {
    checkOptions("the options of symlink", options, OWNER);
    const { uid, gid } = options;
    const request = { ...placeOf(path, options), ...numbers({ uid, gid }), target: pathBytes(target) };
    await this.#channel.unary(FileTree.method.makeLink, request, options);
  }

  /**
   * Removes a file, a link or an empty directory. With `recursive`, removes a directory with everything in it, as far
   * as possible; the result lists what is left.
   */
  async remove(path: GuestPath, options: RemoveOptions = {}): Promise<RemoveResult> {
    checkOptions("the options of remove", options, REMOVE);
    const request = { ...placeOf(path, options), recursive: options.recursive ?? false };
    const { removed, left, leftEntries } = await this.#channel.unary(FileTree.method.remove, request, options);
    return { removed: Number(removed), left: Number(left), leftEntries: leftEntries.map(leftOf) };
  }

  /**
   * Writes entries below a directory in one stream, which is efficient for many small files. Each file is written
   * completely or not at all. Resolves once everything is on the disk, unless `sync` says otherwise. The result lists
   * failed entries. Agents before 0.3.0 fail with UNIMPLEMENTED before the first entry is requested.
   */
  writeTree(path: GuestPath, entries: TreeEntries, options: WriteTreeOptions = {}): Promise<TreeResult> {
    return writeTree(this.#channel, path, entries, options);
  }

  /**
   * Reads a directory with everything in it, including content, in one stream. The call starts when the caller begins
   * to iterate; leaving the loop cancels it.
   */
  readTree(path: GuestPath, options: ReadTreeOptions = {}): TreeReading {
    return new TreeReading(this.#channel, path, options);
  }

  /** Renames or moves an entry. Replaces an existing entry of the new path, unless `exclusive` is set. */
  async rename(path: GuestPath, newPath: GuestPath, options: RenameOptions = {}): Promise<void> {
    checkOptions("the options of rename", options, RENAME);
    const request = { ...placeOf(path, options), newPath: pathBytes(newPath), exclusive: options.exclusive ?? false };
    await this.#channel.unary(FileTree.method.rename, request, options);
  }

  /** Sets permission bits, owner or time of an entry. Resolves with all of its attributes. */
  async setAttributes(
    path: GuestPath,
    attributes: NewAttributes,
    options: SetAttributesOptions = {},
  ): Promise<PathAttributes> {
    checkOptions("the attributes of setAttributes", attributes, ATTRIBUTES);
    checkOptions("the options of setAttributes", options, SET);
    const { mtime, mtimeNanos, ...rest } = attributes;
    const request = {
      ...placeOf(path, options),
      ...numbers(rest),
      ...(mtime && { mtime: timeField(mtime, mtimeNanos) }),
      follow: options.follow ?? false,
    };
    const { stat } = await this.#channel.unary(FileTree.method.setAttributes, request, options);
    if (stat === undefined) throw unreadable("has no attributes");
    return attributesOf(stat);
  }
}

/** Drops undefined attributes. Throws GuestError for a value that is not an unsigned 32-bit integer. */
function numbers(given: Readonly<Record<string, number | undefined>>): Record<string, number> {
  const present = Object.entries(given).filter((field): field is [string, number] => field[1] !== undefined);
  return Object.fromEntries(present.map(([field, value]) => [field, wholeNumber(value, field)]));
}

function entryOf({ name, stat, errno, mountPoint }: EntryMessage): ListEntry {
  const rawName = Buffer.from(name.buffer, name.byteOffset, name.length);
  // An entry whose attributes could not be read has only type and inode.
  const isRead = stat?.mtime !== undefined;
  return {
    name: rawName.toString(),
    rawName,
    type: stat?.type ?? FileType.UNSPECIFIED,
    ...(isRead && { attributes: attributesOf(stat) }),
    ...(errno !== "" && { errno }),
    mountPoint,
  };
}
