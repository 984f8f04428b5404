import {
  AgentError,
  ALL_WATCHED_DIRECTORIES_LIMIT,
  FileSystemError,
  invalidField,
  type Timers,
  unlessAborted,
  WATCH_CALL_LIMIT,
  WATCH_PATTERN_LIMIT,
  WATCHED_DIRECTORIES_LIMIT,
  Watchers,
  whenAborted,
} from "../../domain/index.ts";
import {
  errnoName,
  RESOLVE_BENEATH,
  RESOLVE_NO_MAGICLINKS,
  RESOLVE_NO_SYMLINKS,
  RESOLVE_NO_XDEV,
} from "../../native/index.ts";
import { matching } from "../../../shared/patterns.ts";
import { type Change, Changes } from "../entries/changes.ts";
import type { Found, WatchedDirectory } from "../entries/watched-directory.ts";
import { WatchedTree } from "../entries/watched-tree.ts";
import type { FileSystem } from "../open/file-system.ts";
import type { OpenDirectory } from "../open/directory.ts";
import { SLASH } from "../open/names.ts";
import { IN, Inotify } from "../open/inotify.ts";
import { fileFailure } from "./failure.ts";
import { checkFilePath, type FileLocation, inTree, openTree, wholePath } from "./location.ts";

/** A decoded FileTree.Watch request. */
export interface WatchRequest extends FileLocation {
  readonly recursive: boolean;
  /** Glob patterns of the entries that are reported. If empty, all entries are reported. */
  readonly names: readonly string[];
  readonly ignore: readonly string[];
  readonly crossMounts: boolean;
}

/** Sends the results of a FileTree.Watch call to its client. */
export interface WatchClient {
  /** This signal is aborted when the client disconnects. */
  readonly signal: AbortSignal;
  /** Reports that the watch has begun, and the number of its directories. */
  begun(directories: number): void;
  /** Sends a batch of changes. Resolves when the client can take the next batch. */
  send(changes: readonly Change[]): Promise<void>;
}

/** Largest number of directories that are checked by one job on a thread. */
const CHECKED_AT_ONCE = 256;
/** How long events are collected before they are read. The kernel merges equal events that follow each other. */
const GATHER_MS = 40;
/**
 * How long to wait before events are read again, if an expected event has not come yet: the second event of a rename,
 * or the event that explains why a directory is missing.
 */
const SETTLE_MS = 5;
const MASK: number =
  IN.MODIFY |
  IN.ATTRIB |
  IN.CLOSE_WRITE |
  IN.MOVED_FROM |
  IN.MOVED_TO |
  IN.CREATE |
  IN.DELETE |
  IN.ONLYDIR |
  IN.EXCL_UNLINK;
/**
 * IN_MASK_ADD (inotify(7)). A directory may be watched a second time, under another path. With this flag, the event
 * types of the second watch are added to those of the first. Without it, they would replace those of the first.
 */
const AND_MORE = IN.MASK_ADD;
const BENEATH: number = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS;
/** Prefix of a file name in the result of watchEach. It means that further files of the directory were not listed. */
const PLUS = 0x2b;
/** Errnos of inotify(7) that fail the whole call: a limit is reached, or the kernel does not support inotify. */
const FATAL: ReadonlySet<string> = new Set(["ENOSPC", "EMFILE", "ENFILE", "ENOMEM", "ENOSYS"]);

/** Serves FileTree.Watch, within the limits for the watches and directories of all clients together. */
export class Watches {
  readonly #parts: { readonly fileSystem: FileSystem; readonly timers: Timers };
  readonly #watchers = new Watchers(
    WATCH_CALL_LIMIT,
    "end one of them, or watch a common parent directory recursively",
  );
  readonly #directories = new Map<Watch, number>();

  constructor(parts: { readonly fileSystem: FileSystem; readonly timers: Timers }) {
    this.#parts = parts;
  }

  /**
   * Reports the changes in a directory until the watch fails. Never resolves.
   *
   * @throws AgentError RESOURCE_EXHAUSTED for too many watches or directories; NOT_FOUND when the directory is removed;
   *   the reason of the signal or of `shutDown`
   */
  async watch(request: WatchRequest, client: WatchClient): Promise<never> {
    checkFilePath(request);
    const patterns = request.names.length + request.ignore.length;
    if (patterns > WATCH_PATTERN_LIMIT)
      throw invalidField("names", `and ignore have ${patterns} patterns in all; the maximum is ${WATCH_PATTERN_LIMIT}`);
    return this.#watchers.watch(client.signal, async (signal) => {
      const watch: Watch = new Watch({ ...this.#parts, request, client, onSize: (size) => this.#count(watch, size) });
      try {
        return await watch.run(signal);
      } finally {
        this.#directories.delete(watch);
      }
    });
  }

  /** Ends all current and future watches with this reason. */
  shutDown(reason: AgentError): void {
    this.#watchers.shutDown(reason);
  }

  #count(watch: Watch, directories: number): void {
    this.#directories.set(watch, directories);
    const all = this.#directories.values().reduce((sum, size) => sum + size, 0);
    if (directories <= WATCHED_DIRECTORIES_LIMIT && all <= ALL_WATCHED_DIRECTORIES_LIMIT) return;
    const message = `a call can watch at most ${WATCHED_DIRECTORIES_LIMIT} directories, and all calls together at most ${ALL_WATCHED_DIRECTORIES_LIMIT}; ignore some directories, such as "node_modules", or watch fewer directories`;
    throw new AgentError("RESOURCE_EXHAUSTED", "TOO_MANY_DIRECTORIES", message, {
      limit: String(WATCHED_DIRECTORIES_LIMIT),
    });
  }
}

interface WatchParts {
  readonly fileSystem: FileSystem;
  readonly timers: Timers;
  readonly request: WatchRequest;
  readonly client: WatchClient;
  readonly onSize: (directories: number) => void;
}

/** The watch of one client. Each round reads events, checks the named directories, and sends the changes. */
class Watch {
  readonly #parts: WatchParts;
  readonly #changes: Changes;
  readonly #tree: WatchedTree;
  #hasBegun = false;
  /** Whether changes are being sent to the client. Until the client has taken them, further changes are merged. */
  #isSending = false;
  /** Whether the kernel may have queued more events than the last read has returned. */
  #hasMore = false;
  /** Whether it is time to read events: a timer has expired, or the kernel has gathered events for GATHER_MS. */
  #isDue = false;
  #wake: () => void = () => {};
  #cancel: (() => void) | undefined;

  constructor(parts: WatchParts) {
    const { names, ignore, recursive: isRecursive } = parts.request;
    const [isNamed, isIgnored = () => false] = [matching(names), matching(ignore)];
    this.#parts = parts;
    this.#changes = new Changes((path) => path === "" || isNamed?.(path) !== false);
    this.#tree = new WatchedTree({ changes: this.#changes, isRecursive, isIgnored });
  }

  async run(signal: AbortSignal): Promise<never> {
    using _aborted = whenAborted(signal, () => this.#wake());
    await using inotify = await this.#inRoot(
      async ({ work }): Promise<Inotify> => new Inotify(work, () => this.#readNow()),
    );
    try {
      for (;;) {
        signal.throwIfAborted();
        if (this.#isDue) this.#read(inotify, true);
        const hasChecked = await this.#checkNext(inotify, signal);
        if (hasChecked) this.#read(inotify, false);
        this.#send();
        if (!hasChecked) await this.#pause(inotify);
      }
    } finally {
      this.#cancel?.();
    }
  }

  /** Checks the next batch of directories. Returns false if no directory needs a check. */
  async #checkNext(inotify: Inotify, signal: AbortSignal): Promise<boolean> {
    if (this.#tree.isGone) return false;
    const { places, paths, ended } = this.#tree.next(CHECKED_AT_ONCE);
    for (const watch of ended) inotify.unwatch(watch);
    if (places.length === 0) return false;
    try {
      await unlessAborted(this.#check(inotify, places, paths), signal);
    } catch (error) {
      this.#unlessGone(error);
    }
    this.#parts.onSize(Math.max(this.#tree.size, this.#tree.unchecked));
    return true;
  }

  #send(): void {
    const { client, request } = this.#parts;
    if (this.#isSending || (this.#tree.unchecked > 0 && !this.#hasBegun && !this.#tree.isGone)) return;
    if (!this.#hasBegun) client.begun(this.#tree.size);
    this.#hasBegun = true;
    const changes = this.#changes.take();
    if (changes.length > 0) {
      if (changes.some(({ kind }) => kind === "RESCAN")) this.#tree.rescanned();
      this.#isSending = true;
      void client.send(changes).then(() => {
        this.#isSending = false;
        this.#wake();
      });
    } else if (this.#tree.isGone && !this.#tree.isUnsettled)
      throw fileFailure(new FileSystemError("watch", "ENOENT"), "watch", wholePath(request));
  }

  /** Waits for events, for the client, or for an abort. */
  #pause(inotify: Inotify): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#wake = resolve;
    if (this.#hasMore) this.#readAfter(0);
    else if (this.#tree.isUnsettled) this.#readAfter(SETTLE_MS);
    else if (this.#cancel === undefined) inotify.arm(GATHER_MS);
    return promise;
  }

  /** Schedules reading events after `delayMs`, unless this is already scheduled. */
  #readAfter(delayMs: number): void {
    this.#cancel ??= this.#parts.timers.after(delayMs, () => {
      this.#cancel = undefined;
      this.#readNow();
    });
  }

  #readNow(): void {
    this.#isDue = true;
    this.#wake();
  }

  #read(inotify: Inotify, ticks: boolean): void {
    const { events, isEmpty } = inotify.read();
    for (const event of events) this.#tree.take(event);
    this.#hasMore = !isEmpty;
    if (!ticks) return;
    this.#isDue = false;
    if (isEmpty) this.#tree.tick();
  }

  /**
   * Checks whether there are directories at these paths. On a thread, adds a watch for each directory and lists its
   * entries.
   */
  async #check(inotify: Inotify, places: readonly WatchedDirectory[], paths: readonly string[]): Promise<void> {
    const { crossMounts, recursive } = this.#parts.request;
    const isRoot = paths[0] === "";
    const answer = await this.#inRoot(async (directory) => {
      const mounts = crossMounts ? directory.findMounts() : undefined;
      const pathAt = (index: number): Buffer => Buffer.from(paths[index] ?? "", "latin1");
      const { below, end } = mounts?.first(0, paths.length, pathAt) ?? { below: undefined, end: paths.length };
      const how = BENEATH | (crossMounts && !directory.refusesMounts(below?.mount) ? 0 : RESOLVE_NO_XDEV);
      const listed = places.slice(0, end).map(({ report }, index) => {
        const lists = report === "created" ? "*" : "/";
        return `${recursive ? lists : "-"}${paths[index] === "" ? "." : paths[index]}\0`;
      });
      const request = Buffer.from((isRoot ? "" : "-.\0") + listed.join(""), "latin1");
      const mask = MASK | AND_MORE | (isRoot ? IN.MOVE_SELF : 0);
      const { descriptor } = inotify;
      return directory.descriptor.nativeBytes(
        "watch",
        (addon, fd) => addon.watchEach(fd, descriptor.fd, request, mask, how),
        below?.mount,
        [descriptor],
      );
    });
    const results = unpack(answer);
    if (!isRoot) this.#tree.checkRoot(results.shift()?.watch ?? -1);
    for (const [index, place] of places.entries()) {
      const result = results[index];
      if (result === undefined) break;
      if (result.watch >= 0) this.#tree.found(place, result, paths[index] ?? "");
      else this.#failed(place, errnoName(result.watch), paths[index] ?? "");
    }
  }

  /**
   * Throws the error of a check, except if the watched directory is missing: then reports its removal, without waiting
   * for the event of the removal. Before the first directory is watched, always throws.
   */
  #unlessGone(error: unknown): void {
    const isGone = error instanceof AgentError && ["PATH_NOT_FOUND", "NOT_A_FOLDER"].includes(error.reason);
    if (!isGone || this.#tree.size === 0) throw error;
    this.#tree.checkRoot(-1);
  }

  #failed(place: WatchedDirectory, errno: string, path: string): void {
    if (FATAL.has(errno))
      throw fileFailure(new FileSystemError("watch", errno), "watch", wholePath(this.#parts.request));
    this.#tree.failed(place, errno, path);
  }

  /**
   * Opens the watched directory, runs `use`, and closes the directory again. It must not stay open: the kernel would
   * not report the removal of the directory, and its file system could not be unmounted.
   */
  #inRoot<Value>(use: (directory: OpenDirectory) => Promise<Value>): Promise<Value> {
    const { fileSystem, request } = this.#parts;
    return inTree(fileSystem, "watch", request, async (tree) => {
      await using directory = await openTree(tree, request);
      return await use(directory);
    });
  }
}

/**
 * Decodes the result of watchEach. Each element describes one path: its watch (or a negated errno), and the listed
 * names.
 */
function unpack(bytes: Buffer): Found[] {
  const results: Found[] = [];
  for (let at = 0; at < bytes.length;) {
    const [watch, end] = [bytes.readInt32LE(at), at + 8 + bytes.readUInt32LE(at + 4)];
    const directories: string[] = [];
    const files: string[] = [];
    let isIncomplete = false;
    for (at += 8; at < end;) {
      const [mark, nul] = [bytes[at], bytes.indexOf(0, at)];
      (mark === SLASH ? directories : files).push(bytes.toString("latin1", at + 1, nul));
      if (mark === PLUS) isIncomplete = true;
      at = nul + 1;
    }
    results.push({ watch, directories, files, isIncomplete });
  }
  return results;
}
