import { type InotifyEvent, IN } from "../open/inotify.ts";
import type { ChangeKind, Changes, HeldMove } from "./changes.ts";
import { PendingChecks } from "./pending-checks.ts";
import { type Found, type Report, WatchedDirectory } from "./watched-directory.ts";

interface Move {
  readonly change: HeldMove | undefined;
  /** The renamed directory; undefined if it is not watched. */
  readonly directory: WatchedDirectory | undefined;
  /** Whether the client already knew the entries of the directory before the rename. */
  readonly isReported: boolean;
  isOld: boolean;
}

export interface WatchedTreeParts {
  readonly changes: Changes;
  readonly isRecursive: boolean;
  readonly isIgnored: (path: string) => boolean;
}

const KINDS: readonly (readonly [mask: number, kind: Exclude<ChangeKind, "MOVED" | "RESCAN">])[] = [
  [IN.MODIFY, "MODIFIED"],
  [IN.CLOSE_WRITE, "CLOSED"],
  [IN.ATTRIB, "ATTRIBUTES"],
];
/** Errnos of a check that found no directory. The event that explains why has arrived or will arrive soon. */
const MISSING: ReadonlySet<string> = new Set(["ENOENT", "ENOTDIR", "ELOOP", "ESTALE"]);

/**
 * Maps each watch of inotify(7) to its directory, and interprets events. Makes no system calls.
 *
 * An event only tells what was true in the past. To find the present state of a path, the caller runs a check: it adds
 * a watch at the path and lists the directory. Each event that reports a new directory causes a check of its path:
 *
 *     event ─► waiting ─► check ─┬─► watched; its subdirectories: waiting
 *                 ▲              └─► missing ─► (tick) ─► gone, if an event has explained it
 *                 └───────────────────────────────┘ otherwise; missing again: rescan
 *
 * - A directory that was not watched is found: it is watched now, and the paths of its subdirectories are checked next.
 * - A directory that was already watched at another path is found: it was moved, so the other path is checked again.
 * - No directory is found: an event says why, but may still be queued. After the queued events were read (`tick`), the
 *   path is checked again, unless one of the events has removed it. If it is missing again, a rescan is reported.
 *
 * No event is processed between the start of checks (`next`) and their results (`found`, `failed`). If the kernel drops
 * events (IN_Q_OVERFLOW), a new round begins: every directory is checked and listed again. At the end of the round, the
 * directories that no check has found are forgotten.
 */
export class WatchedTree {
  readonly #parts: WatchedTreeParts;
  readonly #root = new WatchedDirectory("");
  readonly #directories = new Map<number, WatchedDirectory>();
  readonly #pending = new PendingChecks();
  readonly #moves = new Map<number, Move>();
  #round = 1;
  #ticks = 0;
  /** Whether events were dropped. If so, the whole tree is rescanned after all directories were checked again. */
  #hasDropped = false;
  /** Whether a rescan was sent since the last call of `tick`. The next rename may then be older than the rescan. */
  #isStale = false;
  #lastUnknownKey = 0;
  #unwatched: number[] = [];
  /** Whether the watched directory was removed or renamed. */
  isGone = false;

  constructor(parts: WatchedTreeParts) {
    this.#parts = parts;
    this.#pending.add(this.#root, "nothing");
  }

  /** Number of watched directories. */
  get size(): number {
    return this.#directories.size;
  }

  /** Number of nodes (see WatchedDirectory) that must still be checked. */
  get unchecked(): number {
    return this.#pending.size;
  }

  /** Whether `tick` must be called again: a rename is incomplete, or a check has not found an expected directory. */
  get isUnsettled(): boolean {
    return this.#moves.size > 0 || this.#pending.hasPaused;
  }

  /** Handles an event. An event of an unknown watch is ignored: this watch was removed before the event was read. */
  take({ watch, mask, cookie, name }: InotifyEvent): void {
    const directory = this.#directories.get(watch);
    if ((mask & IN.Q_OVERFLOW) !== 0) this.#listAgain();
    else if (directory === undefined) return;
    else if ((mask & (IN.IGNORED | IN.UNMOUNT | IN.MOVE_SELF)) !== 0) this.#ended(directory, (mask & IN.UNMOUNT) !== 0);
    else if (name === "") {
      // A change of a directory itself is also reported by the watch of its parent, so it is ignored here. The root is
      // the exception, because its parent is not watched.
      if (directory === this.#root) this.#parts.changes.add("ATTRIBUTES", "", true);
    } else this.#takeEntry(directory, name, mask, cookie);
  }

  /** Call it when all queued events were read. Ends overdue renames, and lets missing directories be checked again. */
  tick(): void {
    this.#ticks += 1;
    this.#isStale = false;
    for (const [cookie, move] of this.#moves) {
      if (!move.isOld) {
        move.isOld = true;
        continue;
      }
      this.#moves.delete(cookie);
      if (move.change !== undefined) this.#parts.changes.complete(move.change, undefined);
      if (move.directory !== undefined && move.directory.parent === undefined) this.#forget(move.directory);
    }
    this.#pending.tick();
  }

  /**
   * Returns the next nodes to check, with their paths. The caller must first remove the watches in `ended`. It then
   * checks the paths, and passes each result to `found()` or `failed()`. A node without a result is returned again.
   */
  next(most: number): {
    readonly places: readonly WatchedDirectory[];
    readonly paths: readonly string[];
    readonly ended: readonly number[];
  } {
    const places: WatchedDirectory[] = [];
    const paths: string[] = [];
    const ended = this.#unwatched.filter((watch) => !this.#directories.has(watch));
    this.#unwatched = [];
    for (const place of this.#pending.waiting) {
      // The watched directory is checked in a separate batch, because its watch has another mask (IN_MOVE_SELF).
      if (places.length >= most || (place === this.#root && places.length > 0)) break;
      const path = this.#pathOf(place, "");
      // The path is unknown while the directory or an ancestor is being renamed, so the check must wait.
      if (path === undefined) continue;
      if (place !== this.#root && this.#parts.isIgnored(path)) {
        this.#pending.settle(place);
        if (!place.isWatched) place.detach();
        continue;
      }
      places.push(place);
      paths.push(path);
      if (place === this.#root) break;
    }
    if (this.unchecked === 0 && this.#hasDropped) this.#endRound();
    return { places, paths, ended };
  }

  /**
   * Ends the watch of the tree if the root is no longer at its path.
   *
   * @param watch inotify watch of the directory that is now at the root's path; -1 if no directory is there
   */
  checkRoot(watch: number): void {
    if (watch !== this.#root.watch) this.#end();
  }

  /**
   * Call it when a rescan is sent to the client. The client may list a new directory before the watch of this directory
   * starts, and would miss the changes in between. So each new directory that is not watched yet gets a rescan of its
   * own as soon as it is watched.
   */
  rescanned(): void {
    this.#isStale = true;
    this.#pending.rescanCreated();
  }

  /**
   * Handles the result of a check that has found a directory and has added a watch to it. `path` is the path that was
   * checked; `place` is its node.
   */
  found(place: WatchedDirectory, found: Found, path: string): void {
    const { watch } = found;
    const { parent, name, report = "nothing" } = place;
    const known = this.#directories.get(watch);
    if (!this.#isAwaited(place, path)) {
      if (known === undefined) this.#unwatched.push(watch);
      return;
    }
    if (known !== undefined && parent?.isWithin(known) === true) {
      // An ancestor was found at the path of `place`. So a directory must have been renamed during the check.
      this.failed(place, "ESTALE", path);
      return;
    }
    this.#pending.settle(place);
    if (place === this.#root && place.isWatched && known !== place) {
      this.#end();
      return;
    }
    const isNamed = report === "difference" || place.isWatched || known !== undefined;
    const isOther = parent !== undefined && known !== place && isNamed;
    const directory = known ?? (place.isWatched ? new WatchedDirectory(name) : place);
    directory.watch = watch;
    directory.tick = this.#ticks;
    this.#directories.set(watch, directory);
    if (directory !== place && parent !== undefined) this.#settle(directory, parent, name);
    const isListed = directory.round >= this.#round && !isOther;
    const reported = isOther ? "rescan" : report;
    if (reported === "rescan" || (reported === "created" && isListed)) this.#rescan(directory);
    if (isListed) return;
    directory.round = this.#round;
    this.#list(directory, found, reported);
  }

  /** Handles the failure of a check. If no directory was found, repeats the check once before the failure counts. */
  failed(place: WatchedDirectory, errno: string, path: string): void {
    if (!this.#isAwaited(place, path)) return;
    const { parent, name } = place;
    const isMissing = MISSING.has(errno);
    if (isMissing && this.#pending.pause(place, path)) return;
    this.#pending.settle(place);
    if (parent === undefined) {
      this.#end();
      return;
    }
    place.detach();
    this.#forget(place);
    // EXDEV means a mount point. It is not reported, because its contents belong to another file system.
    const reported = this.#pathOf(parent, isMissing ? "" : name);
    if (reported !== undefined && errno !== "EXDEV") this.#parts.changes.rescan(reported, isMissing ? "" : errno);
  }

  /** Whether a check's result still applies. Another result of its batch may have moved the node or ended its check. */
  #isAwaited(place: WatchedDirectory, path: string): boolean {
    return this.#pending.waiting.has(place) && this.#pathOf(place, "") === path;
  }

  /** Reports that the directory that the client watches is no longer at its path. */
  #end(): void {
    if (!this.isGone) this.#parts.changes.add("REMOVED", "", true);
    this.isGone = true;
  }

  #takeEntry(directory: WatchedDirectory, name: string, mask: number, cookie: number): void {
    const { changes, isIgnored } = this.#parts;
    const path = this.#pathOf(directory, name);
    if (path === undefined) directory.top.hasChanged = true;
    else if (isIgnored(path)) return;
    const isDirectory = (mask & IN.ISDIR) !== 0;
    const report = (kind: Parameters<Changes["add"]>[0]): void => {
      if (path !== undefined) changes.add(kind, path, isDirectory);
    };
    if ((mask & (IN.DELETE | IN.MOVED_FROM)) !== 0) {
      const known = directory.child(name);
      // The removed entry was not a directory. But after the removal, a check has found the directory `known` at the
      // same path. The client will now forget whatever is at this path, so `known` is reported again.
      if (known !== undefined && !isDirectory) this.#pending.add(known, "rescan");
      const child = isDirectory ? known : undefined;
      const unreported = child?.report ?? "difference";
      if (child !== undefined) this.#pending.settle(child);
      child?.detach();
      if ((mask & IN.DELETE) !== 0) {
        report("REMOVED");
        if (child !== undefined) this.#forget(child);
      } else {
        const change = path === undefined ? undefined : changes.hold(path, isDirectory);
        const isReported = change !== undefined && (unreported === "nothing" || unreported === "difference");
        const moving = child?.isWatched === true ? child : undefined;
        this.#moves.set(cookie, { change, directory: moving, isReported, isOld: false });
      }
    } else if ((mask & (IN.CREATE | IN.MOVED_TO)) !== 0) {
      const move = (mask & IN.MOVED_TO) === 0 ? undefined : this.#moves.get(cookie);
      if (move !== undefined) this.#moves.delete(cookie);
      // The event is ignored, because a check has already found the new directory and reported its entries.
      if (move === undefined && directory.child(name)?.round === this.#round) return;
      if (move?.change === undefined) report("CREATED");
      else changes.complete(move.change, path);
      const moved = move?.directory?.parent === undefined ? move?.directory : undefined;
      if (moved !== undefined) this.#settle(moved, directory, name);
      const isKnown = moved !== undefined && move?.isReported === true && !this.#isStale;
      const unknown = move === undefined ? "created" : "rescan";
      if (isDirectory) this.#expect(directory, name, isKnown ? "difference" : unknown);
    } else for (const [bit, kind] of KINDS) if ((mask & bit) !== 0) report(kind);
  }

  /** Handles the end of a directory's watch: a removal, an unmount, or a rename of the root (IN_MOVE_SELF). */
  #ended(directory: WatchedDirectory, isUnmounted: boolean): void {
    const { parent, name, report } = directory;
    this.#directories.delete(directory.watch);
    if (directory === this.#root) this.#end();
    else {
      this.#pending.settle(directory);
      directory.detach();
      const expected = isUnmounted ? "rescan" : report;
      if (parent !== undefined && expected !== undefined) this.#expect(parent, name, expected);
    }
    // Only an empty directory can be removed. If this one had subdirectories, they have been moved elsewhere.
    for (const child of directory.children) this.#markPathUnknown(child);
  }

  /**
   * Detaches a directory whose new path is unknown. If no check finds the directory before the second call of `tick`,
   * that call forgets it.
   */
  #markPathUnknown(directory: WatchedDirectory): void {
    this.#pending.settle(directory);
    directory.detach();
    const move = { change: undefined, directory, isReported: false, isOld: false };
    if (directory.isWatched) this.#moves.set((this.#lastUnknownKey -= 1), move);
  }

  #list(directory: WatchedDirectory, { directories, files, isIncomplete }: Found, report: Report): void {
    const path = report === "created" ? this.#pathOf(directory, "") : undefined;
    const add = (name: string, isDirectory: boolean): boolean => {
      if (path === undefined) return true;
      const entry = path === "" ? name : `${path}/${name}`;
      if (this.#parts.isIgnored(entry)) return false;
      this.#parts.changes.add("CREATED", entry, isDirectory);
      return true;
    };
    if (report === "created" && (path === undefined || isIncomplete)) this.#rescan(directory);
    for (const name of files) add(name, false);
    for (const name of directories)
      if (add(name, true)) this.#expect(directory, name, report === "difference" ? "nothing" : report);
  }

  /** Asks the client to list a directory again, at its new path if it is being renamed. */
  #rescan(directory: WatchedDirectory): void {
    const path = this.#pathOf(directory, "");
    if (path === undefined) directory.top.hasChanged = true;
    // After events were dropped, no single directory needs a rescan, because the end of the round rescans everything.
    else if (!this.#hasDropped) this.#parts.changes.rescan(path);
  }

  #expect(parent: WatchedDirectory, name: string, report: Report): void {
    if (!this.#parts.isRecursive) return;
    const known = parent.child(name);
    const place = known ?? new WatchedDirectory(name);
    if (known === undefined) parent.attach(place, name);
    this.#pending.add(place, report);
  }

  /**
   * Records the path at which a directory was found. Its previous path is checked again. If another directory was known
   * at the new path, that directory must have been moved away; a queued event will show to which path.
   */
  #settle(directory: WatchedDirectory, parent: WatchedDirectory, name: string): void {
    const { parent: before, name: nameBefore } = directory;
    this.#pending.settle(directory);
    directory.detach();
    if (before !== undefined) this.#expect(before, nameBefore, "rescan");
    // According to this event, `directory` was moved below itself, which is impossible. The directory `parent` is now below `directory`,
    // so the event is older than the checks that found it there. A further check will find its present path.
    if (parent.isWithin(directory)) {
      this.#markPathUnknown(directory);
      return;
    }
    const replaced = parent.child(name);
    const expected = replaced?.report;
    if (replaced !== undefined) this.#markPathUnknown(replaced);
    parent.attach(directory, name);
    this.#checkBelow(directory);
    if (expected !== undefined) this.#pending.add(directory, expected);
    if (!directory.hasChanged) return;
    directory.hasChanged = false;
    this.#rescan(directory);
  }

  /**
   * Repeats the checks that have found directories below `directory` since the last call of `tick`. `directory` was
   * moved, so a check of an old path may have found another directory there.
   */
  #checkBelow(directory: WatchedDirectory): void {
    for (const child of directory.children) {
      this.#pending.moved(child);
      if (child.isWatched && child.tick === this.#ticks) this.#pending.add(child, "difference");
      this.#checkBelow(child);
    }
  }

  /** Forgets a directory and all below it. Their watches are returned by `next()`, whose caller removes them. */
  #forget(directory: WatchedDirectory): void {
    this.#pending.settle(directory);
    if (directory.isWatched) {
      this.#directories.delete(directory.watch);
      this.#unwatched.push(directory.watch);
    }
    for (const child of directory.children) this.#forget(child);
  }

  #listAgain(): void {
    this.#round += 1;
    this.#hasDropped = true;
    this.#pending.add(this.#root, "nothing");
  }

  #endRound(): void {
    this.#hasDropped = false;
    for (const directory of this.#directories.values()) {
      if (directory.round === this.#round) continue;
      directory.detach();
      this.#forget(directory);
    }
    this.#parts.changes.rescan("");
  }

  /** Path relative to the watched directory; undefined while the directory or an ancestor is being renamed. */
  #pathOf(directory: WatchedDirectory, name: string): string | undefined {
    return directory.pathFrom(this.#root, name);
  }
}
