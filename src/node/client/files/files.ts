import { FileTree } from "../../../shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { GuestAgent } from "../../../shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import type { Piece } from "../../tar/index.ts";
import { checkOptions } from "../arguments.ts";
import type { CallOptions, Channel } from "../grpc/channel.ts";
import { GuestError, invalidOption, unreadable } from "../errors/errors.ts";
import type { KeptOptions } from "../commands/keep.ts";
import type { Health } from "../lifecycle/messages.ts";
import type { Names } from "../options.ts";
import { type DirectoryEntry, Listing, OPENDIR, type OpendirOptions } from "./listing.ts";
import type { DirectoryCopy, DownloadOptions, LocalPath, UploadOptions } from "./directory-copy.ts";
import {
  beneathFields,
  type GuestPath,
  numbers,
  pathBytes,
  pathFields,
  PLACE,
  placeOf,
  type PlaceOptions,
  timeField,
} from "./path.ts";
import { GuestReadStream, readFile, readPieces, type ReadFileOptions, type ReadOptions } from "./read.ts";
import { ArchiveReading, type ReadTreeOptions, TreeReading } from "./read-tree.ts";
import { type FileStat, statOf } from "./stat.ts";
import { type LeftEntry, leftOf, type TreeEntries, type TreeResult } from "./tree-entry.ts";
import { removeIncomplete, withRecursive } from "./rm-errors.ts";
import { sentEntries } from "./tree-shape.ts";
import { type DirectoryEvent, watchDirectory, type WatchOptions, type WatchParts } from "./watch.ts";
import { type FileSource, writeFile, type WriteFileOptions, type WriteFileResult } from "./write.ts";
import { writeTree, type WriteTreeOptions } from "./write-tree.ts";

/** Options for the owner of a new entry. */
interface OwnerOptions extends PlaceOptions {
  /** Numeric user id of the owner. Default: the workload's user. */
  readonly uid?: number | undefined;
  /**
   * Group id of the owner. Default: the workload's group. But a new directory in a setgid directory gets the group of
   * that directory.
   */
  readonly gid?: number | undefined;
}

/** Options of `readdir`. */
export interface ReaddirOptions extends OpendirOptions {
  /** Resolve with DirectoryEntry objects, which are not Node's Dirent, instead of names. Default: false. */
  readonly withFileTypes?: boolean | undefined;
}

/** Options of `mkdir`. */
export interface MkdirOptions extends OwnerOptions {
  /**
   * Create missing parent directories, and accept a directory that exists. Default: false, so that an existing path
   * fails with ALREADY_EXISTS.
   */
  readonly recursive?: boolean | undefined;
  /** Permission bits. Default: 0o755. */
  readonly mode?: number | undefined;
}

/** Options of `symlink`. */
export type SymlinkOptions = OwnerOptions;

/** Options of `rm`, named as in Node's fs.rm. */
export interface RmOptions extends PlaceOptions {
  /** Remove a directory with everything in it. Default: false, so that only empty directories are removed. */
  readonly recursive?: boolean | undefined;
  /** Succeed if the path does not exist. Default: false. */
  readonly force?: boolean | undefined;
  /** Called for the first 100 entries that could not be removed, before the call rejects with REMOVE_INCOMPLETE. */
  readonly onFailure?: ((failure: LeftEntry) => void) | undefined;
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

/** Options of `readlink`, named as in Node's fs.readlink. */
export interface ReadlinkOptions extends PlaceOptions {
  /** "buffer": resolve with bytes. "utf8" (default): resolve with text. */
  readonly encoding?: "utf8" | "buffer" | undefined;
}

/** The attributes to set. An attribute that is undefined stays unchanged. */
export interface NewAttributes {
  /** Permission bits, at most 0o7777. */
  readonly mode?: number | undefined;
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
  /** Modification time. */
  readonly mtime?: Date | undefined;
  /** Nanoseconds of `mtime` since its last full second. Default: taken from the milliseconds of `mtime`. */
  readonly mtimeNanos?: number | undefined;
}

const OWNER: Names<OwnerOptions> = { ...PLACE, uid: true, gid: true };
const READDIR: Names<ReaddirOptions> = { ...OPENDIR, withFileTypes: true };
const MKDIR: Names<MkdirOptions> = { ...OWNER, recursive: true, mode: true };
const RM: Names<RmOptions> = { ...PLACE, recursive: true, force: true, onFailure: true };
const RENAME: Names<RenameOptions> = { ...PLACE, exclusive: true };
const SET: Names<SetAttributesOptions> = { ...PLACE, follow: true };
const READLINK: Names<ReadlinkOptions> = { ...PLACE, encoding: true };
const ATTRIBUTES: Names<NewAttributes> = { mode: true, uid: true, gid: true, mtime: true, mtimeNanos: true };

/** The client functions that `Files` uses. */
export interface FilesParts {
  readonly channel: Channel;
  readonly redial: (options: Pick<KeptOptions, "resume">) => WatchParts;
  readonly health: (options: CallOptions) => Promise<Health>;
}

/**
 * Files and directories of the sandbox. Methods and options are named as in node:fs/promises. Each method rejects with
 * GuestError. Unlike in Node, `error.code` is the agent's reason, such as PATH_NOT_FOUND, and the errno, such as
 * ENOENT, is `error.metadata.errno`. If the connection fails, the client repeats only `stat`, `lstat`, `readlink` and
 * `exists`.
 *
 * There is no `copyFile`, `cp` or `appendFile`, because the protocol has no calls that copy within the guest or append.
 * Run a command instead:
 *
 * - To copy within the guest: `run(["cp", "-a", from, to], { check: true })`
 * - To append to a file: `run(["sh", "-c", 'cat >> "$1"', "sh", path], { input, check: true })`
 */
export class Files {
  readonly #parts: FilesParts;
  readonly #channel: Channel;

  constructor(parts: FilesParts) {
    this.#parts = parts;
    this.#channel = parts.channel;
  }

  /** Reads a whole file as bytes. */
  readFile(
    path: GuestPath,
    options?: (ReadFileOptions & { readonly encoding?: null | undefined }) | null,
  ): Promise<Buffer>;
  /** Reads a whole file as text, in the given encoding, such as "utf8". */
  readFile(
    path: GuestPath,
    options: BufferEncoding | (ReadFileOptions & { readonly encoding: BufferEncoding }),
  ): Promise<string>;
  readFile(path: GuestPath, options?: BufferEncoding | ReadFileOptions | null): Promise<string | Buffer> {
    return readFile(this.#channel, path, options);
  }

  /** Returns a file's content as a stream. The request is sent when the caller begins to read. */
  createReadStream(path: GuestPath, options?: ReadOptions): GuestReadStream {
    return new GuestReadStream(this.#channel, path, options);
  }

  /**
   * Iterates over a file's content and its holes. The zeros of a sparse file are not transferred, except by agents
   * before 0.4.0, which send them as content. Leaving the loop cancels the call.
   */
  readPieces(path: GuestPath, options?: ReadOptions): AsyncIterableIterator<Piece, undefined, undefined> {
    return readPieces(this.#channel, path, options);
  }

  /** Writes a file atomically: readers see either the old content or the whole new content. */
  writeFile(path: GuestPath, content: FileSource, options?: WriteFileOptions | "utf8"): Promise<WriteFileResult> {
    return writeFile(this.#channel, path, content, options === "utf8" ? {} : options);
  }

  /** Returns the attributes of a path. If the path is a symbolic link, returns the attributes of its target. */
  stat(path: GuestPath, options: PlaceOptions = {}): Promise<FileStat> {
    checkOptions("the options of stat()", options, PLACE);
    return this.#stat(path, false, options);
  }

  /** Returns the attributes of a path. For a symbolic link, returns the attributes of the link itself. */
  lstat(path: GuestPath, options: PlaceOptions = {}): Promise<FileStat> {
    checkOptions("the options of lstat()", options, PLACE);
    return this.#stat(path, true, options);
  }

  /** Resolves with whether a path exists. A symbolic link counts as existing only if its target exists. */
  async exists(path: GuestPath, options: PlaceOptions = {}): Promise<boolean> {
    checkOptions("the options of exists()", options, PLACE);
    try {
      await this.#stat(path, false, options);
      return true;
    } catch (error) {
      if (isMissing(error)) return false;
      throw error;
    }
  }

  /** Returns the target of a symbolic link as bytes. */
  readlink(path: GuestPath, options: ReadlinkOptions & { readonly encoding: "buffer" }): Promise<Buffer>;
  /** Returns the target of a symbolic link. Rejects with INVALID_ARGUMENT if the path is not a symbolic link. */
  readlink(path: GuestPath, options?: ReadlinkOptions): Promise<string>;
  async readlink(path: GuestPath, options: ReadlinkOptions = {}): Promise<string | Buffer> {
    checkOptions("the options of readlink()", options, READLINK);
    const { encoding, ...place } = options;
    const { linkTarget, type } = await this.#stat(path, true, place);
    if (linkTarget === undefined)
      throw invalidOption(
        "path",
        `${JSON.stringify(Buffer.from(path).toString())} is not a symbolic link (it is a ${type})`,
      );
    return encoding === "buffer" ? linkTarget : linkTarget.toString();
  }

  /** Returns the entries of a directory. With `recursive`, also returns the entries of all directories below. */
  readdir(path: GuestPath, options: ReaddirOptions & { readonly withFileTypes: true }): Promise<DirectoryEntry[]>;
  /**
   * Returns the names of a directory's entries. For a directory with millions of entries, use `opendir`, because
   * `readdir` has all names in memory at the same time.
   */
  readdir(path: GuestPath, options?: ReaddirOptions): Promise<string[]>;
  async readdir(path: GuestPath, options: ReaddirOptions = {}): Promise<string[] | DirectoryEntry[]> {
    checkOptions("the options of readdir()", options, READDIR);
    const { withFileTypes = false, ...open } = options;
    const entries: DirectoryEntry[] = [];
    for await (const entry of this.opendir(path, open)) entries.push(entry);
    return withFileTypes ? entries : entries.map(({ name }) => name);
  }

  /**
   * Lists the entries of a directory, even millions, and yields each as it arrives. The call starts when the caller
   * begins to iterate; leaving the loop cancels the call.
   */
  opendir(path: GuestPath, options: OpendirOptions = {}): Listing {
    return new Listing(this.#channel, path, options);
  }

  /**
   * Creates a directory. If the path exists already, rejects with ALREADY_EXISTS. With `recursive`, accepts a directory
   * that exists, and resolves with the path if this call has created the directory, otherwise with undefined. (Node
   * resolves with the path of the first created directory, which the agent does not report.)
   */
  async mkdir(path: GuestPath, options: MkdirOptions = {}): Promise<string | undefined> {
    checkOptions("the options of mkdir()", options, MKDIR);
    const { recursive = false, uid, gid, mode } = options;
    const how = { parents: recursive, exclusive: !recursive };
    const request = { ...placeOf(path, options), ...numbers({ uid, gid, mode }), ...how };
    const { created } = await this.#channel.unary(FileTree.method.makeFolder, request, options);
    return recursive && created ? Buffer.from(path).toString() : undefined;
  }

  /** Creates a symbolic link. The target need not exist. The parameters are in the order of ln(1) and node:fs. */
  async symlink(target: GuestPath, path: GuestPath, options: SymlinkOptions = {}): Promise<void> {
    checkOptions("the options of symlink()", options, OWNER);
    const { uid, gid } = options;
    const request = { ...placeOf(path, options), ...numbers({ uid, gid }), target: pathBytes(target) };
    await this.#channel.unary(FileTree.method.makeLink, request, options);
  }

  /**
   * Removes a file, a link or an empty directory. With `recursive`, removes a directory with everything in it. Resolves
   * with the number of removed entries. If some entries of a directory cannot be removed, removes all others and then
   * rejects with REMOVE_INCOMPLETE. The metadata of that error has the numbers of removed entries (`removed`) and of
   * remaining entries (`left`).
   */
  async rm(path: GuestPath, options: RmOptions = {}): Promise<number> {
    checkOptions("the options of rm()", options, RM);
    const { recursive = false, force = false, onFailure, ...call } = options;
    const request = { ...placeOf(path, call), recursive };
    try {
      const answer = await this.#channel.unary(FileTree.method.remove, request, call);
      const removed = Number(answer.removed);
      if (answer.left === 0n) return removed;
      const leftEntries = answer.leftEntries.map(leftOf);
      for (const entry of leftEntries) onFailure?.(entry);
      throw removeIncomplete(removed, Number(answer.left), leftEntries);
    } catch (error) {
      if (force && isMissing(error)) return 0;
      throw recursive ? error : withRecursive(error);
    }
  }

  /** Renames or moves an entry. If the new path exists, it is replaced, unless `exclusive` is set. */
  async rename(path: GuestPath, newPath: GuestPath, options: RenameOptions = {}): Promise<void> {
    checkOptions("the options of rename()", options, RENAME);
    const request = { ...placeOf(path, options), newPath: pathBytes(newPath), exclusive: options.exclusive ?? false };
    await this.#channel.unary(FileTree.method.rename, request, options);
  }

  /** Sets the permission bits of a path. If the path is a symbolic link, sets the bits of its target. */
  async chmod(path: GuestPath, mode: number, options: PlaceOptions = {}): Promise<void> {
    checkOptions("the options of chmod()", options, PLACE);
    await this.#set(path, { mode }, { ...options, follow: true });
  }

  /** Sets the user and group ids of a path. If the path is a symbolic link, sets the ids of its target. */
  async chown(path: GuestPath, uid: number, gid: number, options: PlaceOptions = {}): Promise<void> {
    checkOptions("the options of chown()", options, PLACE);
    await this.#set(path, { uid, gid }, { ...options, follow: true });
  }

  /** Sets the owner and group of a path. If the path is a symbolic link, changes the link itself. */
  async lchown(path: GuestPath, uid: number, gid: number, options: PlaceOptions = {}): Promise<void> {
    checkOptions("the options of lchown()", options, PLACE);
    await this.#set(path, { uid, gid }, options);
  }

  /** Sets permission bits, owner or time of an entry in one call. Resolves with all of its attributes. */
  async setAttributes(
    path: GuestPath,
    attributes: NewAttributes,
    options: SetAttributesOptions = {},
  ): Promise<FileStat> {
    checkOptions("the attributes of setAttributes()", attributes, ATTRIBUTES);
    checkOptions("the options of setAttributes()", options, SET);
    return this.#set(path, attributes, options);
  }

  /**
   * Copies a local directory with everything in it into a directory of the guest, which is created together with
   * missing parents. Copies contents, modes and times; symbolic links are copied as links. Replaces existing files and
   * merges directories. Calls `onFailure` for each entry that cannot be read locally or written in the guest, copies
   * all others, and then rejects with COPY_INCOMPLETE. If the local directory itself cannot be read, rejects with
   * SOURCE_FAILED and the file system's error as the cause. After a lost connection, for example because of a standby,
   * the copy continues. Files that this call has already written are then not written again, if they still exist
   * unchanged.
   */
  async upload(local: LocalPath, path: GuestPath, options: UploadOptions = {}): Promise<DirectoryCopy> {
    const { uploadDirectory } = await import("./upload-directory.ts");
    return uploadDirectory({ files: this, channel: this.#channel, health: this.#parts.health }, local, path, options);
  }

  /**
   * Copies a directory of the guest with everything in it into a local directory, which is created. Works like
   * `upload`, but never copies setuid, setgid and sticky bits, and applies the umask to modes. Changes nothing outside
   * of the local directory, whatever the guest sends. Calls `onFailure` for each entry that cannot be read in the guest
   * or written locally, copies all others, and then rejects with COPY_INCOMPLETE. If the local directory cannot be
   * created, rejects with DESTINATION_FAILED. After a lost connection the copy starts over.
   */
  async download(path: GuestPath, local: LocalPath, options: DownloadOptions = {}): Promise<DirectoryCopy> {
    const { downloadDirectory } = await import("./download-directory.ts");
    return downloadDirectory({ files: this, channel: this.#channel, path }, local, options);
  }

  /**
   * Writes entries below a directory in one stream, which is efficient for many small files. Each file is written
   * completely or not at all. Resolves once everything is on the disk, unless `sync` is "none". The result lists the
   * entries that failed. Agents before 0.3.0 fail with UNIMPLEMENTED before the client takes the first entry from
   * `entries`.
   */
  writeTree(path: GuestPath, entries: TreeEntries, options: WriteTreeOptions = {}): Promise<TreeResult> {
    return writeTree(this.#channel, path, sentEntries(entries), options);
  }

  /**
   * Reads a directory with everything in it, including content, in one stream. The call starts when the caller begins
   * to iterate; leaving the loop cancels the call.
   */
  readTree(path: GuestPath, options: ReadTreeOptions = {}): TreeReading {
    return new TreeReading(new ArchiveReading(this.#channel, path, options));
  }

  /**
   * Yields the changes in a directory until the caller leaves the loop or closes the client. The first event is
   * `ready`. If the connection is lost, for example because of a standby, the client reconnects and yields the event
   * `rescan`.
   */
  watch(path: GuestPath, options: WatchOptions = {}): AsyncIterableIterator<DirectoryEvent, undefined, undefined> {
    return watchDirectory(this.#parts.redial(options), path, options);
  }

  async #stat(path: GuestPath, noFollow: boolean, options: PlaceOptions): Promise<FileStat> {
    const request = { ...pathFields(path), ...beneathFields(options), noFollow };
    return statOf(path, await this.#channel.question(GuestAgent.method.statPath, request, options));
  }

  async #set(path: GuestPath, attributes: NewAttributes, options: SetAttributesOptions): Promise<FileStat> {
    const { mtime, mtimeNanos, ...rest } = attributes;
    const request = {
      ...placeOf(path, options),
      ...numbers(rest),
      ...(mtime && { mtime: timeField(mtime, mtimeNanos) }),
      follow: options.follow ?? false,
    };
    const { stat } = await this.#channel.unary(FileTree.method.setAttributes, request, options);
    if (stat === undefined) throw unreadable("has no attributes");
    return statOf(path, stat);
  }
}

/** Whether an error says that the path of the call does not exist. */
function isMissing(error: unknown): boolean {
  return error instanceof GuestError && error.reason === "PATH_NOT_FOUND";
}
