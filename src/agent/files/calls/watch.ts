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
import { type Place, WatchedTree } from "../entries/watched-tree.ts";
import type { FileSystem } from "../open/file-system.ts";
import type { OpenDirectory } from "../open/directory.ts";
import { IN, Inotify, type InotifyEvent } from "../open/inotify.ts";
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

/** The client of a FileTree.Watch call. */
export interface WatchClient {
  /** Aborted when the client is gone. */
  readonly signal: AbortSignal;
  /** Reports that the watch has begun, and the number of its directories. */
  begun(directories: number): void;
  /** Sends a batch of changes. Resolves when the client can take the next batch. */
  send(changes: readonly Change[]): Promise<void>;
}

/** Largest number of directories that are checked by one job on a thread. */
const CHECKED_AT_ONCE = 256;
/** How long events are collected before they are read. A rename waits this long once more for its second event. */
const GATHER_MS = 20;
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
/** If the directory is already watched under another path, inotify(7) adds these events to the existing watch. */
const AND_MORE = IN.MASK_ADD;
const BENEATH: number = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS;
/** Errnos of inotify(7) that fail the whole call: a limit is reached, or the kernel does not support inotify. */
const FATAL: ReadonlySet<string> = new Set(["ENOSPC", "EMFILE", "ENFILE", "ENOMEM", "ENOSYS"]);

/** Serves FileTree.Watch, within the limits for the watches and directories of all clients together. */
export class Watches {
  readonly #parts: { readonly fileSystem: FileSystem; readonly timers: Timers };
  readonly #watchers = new Watchers(WATCH_CALL_LIMIT, "end one, or watch a common parent directory recursively");
  readonly #directories = new Map<Watch, number>();

  constructor(parts: { readonly fileSystem: FileSystem; readonly timers: Timers }) {
    this.#parts = parts;
  }

  /**
   * Reports the changes in a directory until the watch fails. Never resolves.
   *
   * @throws AgentError RESOURCE_EXHAUSTED for too many watches or directories; NOT_FOUND when the directory is removed;
   *   the reason of the signal or of `leave`
   */
  async watch(request: WatchRequest, client: WatchClient): Promise<never> {
    checkFilePath(request);
    if (request.names.length + request.ignore.length > WATCH_PATTERN_LIMIT)
      throw invalidField("names", `and ignore have more than ${WATCH_PATTERN_LIMIT} patterns together`);
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
    const limits = `${WATCHED_DIRECTORIES_LIMIT} directories, and all calls together ${ALL_WATCHED_DIRECTORIES_LIMIT}`;
    const message = `a call watches at most ${limits}; ignore some directories, such as "node_modules", or watch fewer directories`;
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

/** The watch of one client. Reads events, has a thread check the places that the events name, and sends the changes. */
class Watch {
  readonly #parts: WatchParts;
  readonly #changes: Changes;
  readonly #tree: WatchedTree;
  readonly #begun = Promise.withResolvers<void>();
  readonly #over = new AbortController();
  #news = Promise.withResolvers<void>();
  /** Events that were read but not processed, because they may belong to a directory whose check is in progress. */
  #events: InotifyEvent[] = [];
  #hasMore = false;
  #isChecking = false;
  #cancel: (() => void) | undefined;

  constructor(parts: WatchParts) {
    const { names, ignore, recursive: isRecursive } = parts.request;
    const [isNamed, isIgnored = () => false] = [matching(names), matching(ignore)];
    this.#parts = parts;
    this.#changes = new Changes((path) => path === "" || isNamed?.(path) !== false);
    this.#tree = new WatchedTree({ changes: this.#changes, isRecursive, isIgnored });
  }

  async run(client: AbortSignal): Promise<never> {
    const signal = AbortSignal.any([client, this.#over.signal]);
    await using inotify = await this.#inRoot(
      async ({ work }): Promise<Inotify> => new Inotify(work, () => this.#gather(inotify, GATHER_MS)),
    );
    try {
      inotify.arm();
      return await unlessAborted(Promise.race([this.#checkAll(inotify, signal), this.#sendAll(signal)]), signal);
    } finally {
      this.#cancel?.();
      this.#over.abort();
    }
  }

  async #checkAll(inotify: Inotify, signal: AbortSignal): Promise<never> {
    for (;;) {
      const { places, paths, ended } = this.#tree.next(CHECKED_AT_ONCE);
      for (const watch of ended) inotify.unwatch(watch);
      if (places.length > 0) {
        this.#isChecking = true;
        await this.#check(inotify, places, paths).catch((error: unknown) => this.#unlessGone(error));
        this.#isChecking = false;
        signal.throwIfAborted();
        this.#parts.onSize(Math.max(this.#tree.size, this.#tree.unchecked));
        if (this.#events.length > 0) this.#take(inotify);
        else if (this.#tree.isUnsettled) this.#gather(inotify, GATHER_MS);
      } else {
        if (this.#tree.unchecked === 0) this.#begun.resolve();
        this.#wake();
        await unlessAborted(this.#news.promise, signal);
      }
    }
  }

  async #sendAll(signal: AbortSignal): Promise<never> {
    const { client, request } = this.#parts;
    await unlessAborted(this.#begun.promise, signal);
    client.begun(this.#tree.size);
    for (;;) {
      const changes = this.#changes.take();
      if (changes.some(({ kind }) => kind === "RESCAN")) this.#tree.rescanned();
      if (changes.length > 0) await unlessAborted(client.send(changes), signal);
      else if (this.#tree.isGone)
        throw fileFailure(new FileSystemError("watch", "ENOENT"), "watch", wholePath(request));
      else await unlessAborted(this.#news.promise, signal);
    }
  }

  #wake(): void {
    this.#news.resolve();
    this.#news = Promise.withResolvers();
  }

  /** Schedules reading events after `delayMs`, unless this is already scheduled. */
  #gather(inotify: Inotify, delayMs: number): void {
    this.#cancel ??= this.#parts.timers.after(delayMs, () => {
      this.#cancel = undefined;
      try {
        if (this.#events.length === 0) {
          const { events, isEmpty } = inotify.read();
          this.#events = events;
          this.#hasMore = !isEmpty;
        }
        this.#take(inotify);
      } catch (error) {
        this.#over.abort(error);
      }
    });
  }

  /** Processes events in order. Stops at an event with an unknown watch that the running check may have created. */
  #take(inotify: Inotify): void {
    const rest = this.#events.findIndex((event) => !this.#tree.take(event) && this.#isChecking);
    this.#events = rest < 0 ? [] : this.#events.slice(rest);
    // While the rest of the events waits, the kernel may have queued further events, which must be read later.
    if (rest >= 0) this.#hasMore = true;
    else {
      if (!this.#hasMore) this.#tree.tick();
      if (this.#hasMore) this.#gather(inotify, 0);
      else if (this.#tree.isUnsettled) this.#gather(inotify, GATHER_MS);
      else inotify.arm();
    }
    this.#wake();
  }

  /** Checks places: a thread adds a watch for each directory and lists its entries. */
  async #check(inotify: Inotify, places: readonly Place[], paths: readonly string[]): Promise<void> {
    const { crossMounts, recursive } = this.#parts.request;
    const isRoot = places[0]?.parent === undefined;
    const bytes = paths.map((path) => Buffer.from(path, "latin1"));
    const answer = await this.#inRoot(async (directory) => {
      const mounts = crossMounts ? directory.findMounts() : undefined;
      const { below, end } = mounts?.first(0, bytes.length, (index) => bytes[index] ?? Buffer.alloc(0)) ?? {
        below: undefined,
        end: bytes.length,
      };
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
      if (result === undefined) this.#tree.putBack(place);
      else if (result.watch >= 0) this.#tree.found(place, result);
      else this.#failed(place, errnoName(result.watch));
    }
  }

  /** Ignores an error of a watched directory that was removed: the event for its removal has not been read yet. */
  #unlessGone(error: unknown): void {
    const isGone = error instanceof AgentError && ["PATH_NOT_FOUND", "NOT_A_FOLDER"].includes(error.reason);
    if (!isGone || this.#tree.size === 0) throw error;
    this.#tree.checkRoot(-1);
    this.#begun.resolve();
  }

  #failed(place: Place, errno: string): void {
    if (FATAL.has(errno))
      throw fileFailure(new FileSystemError("watch", errno), "watch", wholePath(this.#parts.request));
    this.#tree.failed(place, errno);
  }

  /**
   * Opens the watched directory only while `use` runs: as long as a directory is open, the kernel does not report its
   * removal, and its file system cannot be unmounted.
   */
  #inRoot<Value>(use: (directory: OpenDirectory) => Promise<Value>): Promise<Value> {
    const { fileSystem, request } = this.#parts;
    return inTree(fileSystem, "watch", request, async (tree) => {
      await using directory = await openTree(tree, request);
      return await use(directory);
    });
  }
}

/** Decodes the result of the addon's watchEach: a watch or negated errno, and the listed names, for each path. */
function unpack(bytes: Buffer): { watch: number; names: string[] }[] {
  const results: { watch: number; names: string[] }[] = [];
  for (let at = 0; at < bytes.length;) {
    const [watch, end] = [bytes.readInt32LE(at), at + 8 + bytes.readUInt32LE(at + 4)];
    results.push({
      watch,
      names: bytes
        .toString("latin1", at + 8, end)
        .split("\0")
        .slice(0, -1),
    });
    at = end;
  }
  return results;
}
