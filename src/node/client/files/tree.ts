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

/** Owner of the new entry. */
interface OwnerOptions extends PlaceOptions {
  /** Default: the workload's user. */
  readonly uid?: number | undefined;
  /** Default: the workload's group; in a folder with setgid that folder's, for a folder. */
  readonly gid?: number | undefined;
}

/** Options of `list`. */
export interface ListOptions extends PlaceOptions {
  /** Levels of folders to list; Infinity: all. Default: 1, the folder's own entries. */
  readonly depth?: number | undefined;
  /** Entries after which the listing ends. Default: no limit. */
  readonly maxEntries?: number | undefined;
  /** Descend into mount points as well. Default: false. */
  readonly crossMounts?: boolean | undefined;
}

/** Options of `mkdir`. */
export interface MkdirOptions extends OwnerOptions {
  /** Make missing folders above it. Default: false. */
  readonly parents?: boolean | undefined;
  /** Permission bits. Default: 0o755. */
  readonly mode?: number | undefined;
  /** Refuse with ALREADY_EXISTS when anything is there. Default: false. */
  readonly exclusive?: boolean | undefined;
}

/** Options of `symlink`. */
export type SymlinkOptions = OwnerOptions;

/** Options of `remove`. */
export interface RemoveOptions extends PlaceOptions {
  /** A folder with all in it. Default: false. */
  readonly recursive?: boolean | undefined;
}

/** Options of `rename`. */
export interface RenameOptions extends PlaceOptions {
  /** Refuse with ALREADY_EXISTS instead of replacing what is there. Default: false. */
  readonly exclusive?: boolean | undefined;
}

/** Options of `setAttributes`. */
export interface SetAttributesOptions extends PlaceOptions {
  /** Follow a symbolic link that the path ends in. Default: false, the link itself is changed. */
  readonly follow?: boolean | undefined;
}

/** Attributes to set; what is not given stays as it is. */
export interface NewAttributes {
  /** Permission bits, at most 0o7777. */
  readonly mode?: number | undefined;
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
  /** Time of the last modification. */
  readonly mtime?: Date | undefined;
  /** Its nanoseconds within the second. Default: those of the Date. */
  readonly mtimeNanos?: number | undefined;
}

/** An entry of a folder. */
export interface ListEntry {
  /** Its path from the listed folder on. Bytes that are no UTF-8 are replaced: see `rawName`. */
  readonly name: string;
  readonly rawName: Buffer;
  /** `FileType.UNSPECIFIED` if the type is unknown. */
  readonly type: FileType;
  /** Of the entry itself, a symbolic link with its target. Undefined where `errno` says why. */
  readonly attributes?: PathAttributes;
  /** Why the entry cannot be read, or the folder not listed completely, such as "EACCES". */
  readonly errno?: string;
  /** Something is mounted there. */
  readonly mountPoint: boolean;
}

/** The result of a removal. */
export interface RemoveResult {
  readonly removed: number;
  /** Number of entries that could not be removed, without the folders that hold them. 0: everything is gone. */
  readonly left: number;
  /** The first 100 of them. */
  readonly leftEntries: readonly LeftEntry[];
}

const OWNER: Names<OwnerOptions> = { ...PLACE, uid: true, gid: true };
/** More than any tree has. */
const ALL_LEVELS = 2 ** 32 - 1;
const LIST: Names<ListOptions> = { ...PLACE, depth: true, maxEntries: true, crossMounts: true };
const MKDIR: Names<MkdirOptions> = { ...OWNER, parents: true, mode: true, exclusive: true };
const REMOVE: Names<RemoveOptions> = { ...PLACE, recursive: true };
const RENAME: Names<RenameOptions> = { ...PLACE, exclusive: true };
const SET: Names<SetAttributesOptions> = { ...PLACE, follow: true };
const ATTRIBUTES: Names<NewAttributes> = { mode: true, uid: true, gid: true, mtime: true, mtimeNanos: true };

/** The entries of a folder, in the agent's order: a folder right before its own. Each iteration makes a call. */
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

  /** The listing ended at `maxEntries`, and there was more. */
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

/** The calls of FileTree, as every client has them. Each rejects with GuestError. */
export class FolderClient {
  readonly #channel: Channel;
  readonly #connectOptions: ConnectOptions;

  constructor(channel: Channel, connectOptions: ConnectOptions) {
    this.#channel = channel;
    this.#connectOptions = connectOptions;
  }

  /** The channel of calls that outlive their connection, and how it is dialled again. */
  protected redialled(options: Pick<KeptOptions, "resume">): WatchParts {
    const connectOptions = redialOf(options);
    const dial = async (): Promise<Channel> => openChannel((await connectOptions?.()) ?? this.#connectOptions);
    return { channel: this.#channel, dial, alwaysDials: connectOptions !== undefined };
  }

  /**
   * What changes in a directory, from the first event, `ready`, until the loop is left. After a lost connection, such
   * as by a standby, it starts again, with `rescan`.
   */
  watchDirectory(
    path: GuestPath,
    options: WatchDirectoryOptions = {},
  ): AsyncIterableIterator<DirectoryEvent, undefined, undefined> {
    return watchDirectory(this.redialled(options), path, options);
  }

  /** The entries of a folder as they arrive, even of millions. Begins with the first read; leaving the loop ends it. */
  list(path: GuestPath, options: ListOptions = {}): Listing {
    return new Listing(this.#channel, path, options);
  }

  /** Makes a folder. Resolves with false where there is one already. */
  async mkdir(path: GuestPath, options: MkdirOptions = {}): Promise<boolean> {
    checkOptions("the options of mkdir", options, MKDIR);
    const { parents = false, exclusive = false, uid, gid, mode } = options;
    const request = { ...placeOf(path, options), ...numbers({ uid, gid, mode }), parents, exclusive };
    return (await this.#channel.unary(FileTree.method.makeFolder, request, options)).created;
  }

  /** Makes a symbolic link at a path, to a target, which need not exist; in the order of ln(1) and Node's. */
  async symlink(target: GuestPath, path: GuestPath, options: SymlinkOptions = {}): Promise<void> {
    checkOptions("the options of symlink", options, OWNER);
    const { uid, gid } = options;
    const request = { ...placeOf(path, options), ...numbers({ uid, gid }), target: pathBytes(target) };
    await this.#channel.unary(FileTree.method.makeLink, request, options);
  }

  /**
   * Removes a file, a link or an empty folder; with `recursive` a folder with all in it, as far as it can: see the
   * result.
   */
  async remove(path: GuestPath, options: RemoveOptions = {}): Promise<RemoveResult> {
    checkOptions("the options of remove", options, REMOVE);
    const request = { ...placeOf(path, options), recursive: options.recursive ?? false };
    const { removed, left, leftEntries } = await this.#channel.unary(FileTree.method.remove, request, options);
    return { removed: Number(removed), left: Number(left), leftEntries: leftEntries.map(leftOf) };
  }

  /**
   * Writes entries below a folder in one stream, many small files at once. Each file is whole or not there; resolves
   * when everything is on the disk, unless `sync` says otherwise. What failed is in the result. An agent before 0.3.0
   * refuses with UNIMPLEMENTED before it asks for the first entry.
   */
  writeTree(path: GuestPath, entries: TreeEntries, options: WriteTreeOptions = {}): Promise<TreeResult> {
    return writeTree(this.#channel, path, entries, options);
  }

  /** A folder with all below it, with content, in one stream. Begins with the first read; leaving the loop ends it. */
  readTree(path: GuestPath, options: ReadTreeOptions = {}): TreeReading {
    return new TreeReading(this.#channel, path, options);
  }

  /** Gives an entry another name or folder, in place of what is there unless `exclusive` is set. */
  async rename(path: GuestPath, newPath: GuestPath, options: RenameOptions = {}): Promise<void> {
    checkOptions("the options of rename", options, RENAME);
    const request = { ...placeOf(path, options), newPath: pathBytes(newPath), exclusive: options.exclusive ?? false };
    await this.#channel.unary(FileTree.method.rename, request, options);
  }

  /** Sets the given permission bits, owner and time of an entry. Resolves with all of its attributes. */
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

/** The given attributes. Throws GuestError for a value that is not a number of the schema. */
function numbers(given: Readonly<Record<string, number | undefined>>): Record<string, number> {
  const present = Object.entries(given).filter((field): field is [string, number] => field[1] !== undefined);
  return Object.fromEntries(present.map(([field, value]) => [field, wholeNumber(value, field)]));
}

function entryOf({ name, stat, errno, mountPoint }: EntryMessage): ListEntry {
  const rawName = Buffer.from(name.buffer, name.byteOffset, name.length);
  // Without attributes there are only type and inode.
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
