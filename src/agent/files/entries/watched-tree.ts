import { type InotifyEvent, IN } from "../open/inotify.ts";
import type { ChangeKind, Changes, HeldMove } from "./changes.ts";
import { WatchedDirectory } from "./watched-directory.ts";

/** A name in `parent` whose directory must be watched. Without a parent: the directory that the client watches. */
export interface Place {
  readonly parent: WatchedDirectory | undefined;
  readonly name: string;
  /** Which changes of the directory's entries are reported to the client once the check has found the directory. */
  report: Report;
  state: "waiting" | "checking" | "missing";
  /** The round in which the check of this place began. */
  round: number;
  /** The path that is checked. `missingAt` is the path at which the previous check found no directory. */
  path: string;
  missingAt: string | undefined;
}

/**
 * What is reported about a directory that a check finds. Each value reports more than the value before it: "nothing";
 * "difference" reports a rescan, but only if this is not the directory that was known at this place; "created" reports
 * the creation of each entry; "rescan" reports a rescan in any case.
 */
const REPORTS = ["nothing", "difference", "created", "rescan"] as const;
type Report = (typeof REPORTS)[number];

/**
 * Result of a check that found a directory. Each name begins with `/` if it is a directory, and otherwise with `-`. A
 * final `+` means that the listing is incomplete.
 */
export interface Found {
  readonly watch: number;
  readonly names: readonly string[];
}

interface Move {
  readonly change: HeldMove | undefined;
  /** The directory that is renamed, if it is watched. */
  readonly directory: WatchedDirectory | undefined;
  /** Whether the client knows the entries of the directory. */
  readonly isReported: boolean;
  isOld: boolean;
}

/** Dependencies and options of a WatchedTree. `isIgnored` receives the path of a directory or entry. */
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
/** Errnos of a check that found no directory. An event that explains this has arrived or will arrive soon. */
const MISSING: ReadonlySet<string> = new Set(["ENOENT", "ENOTDIR", "ELOOP", "ESTALE"]);

/**
 * Maps each watch of inotify(7) to its directory, and interprets events. Makes no system calls.
 *
 * An event describes the past, while a check of a place (adding a watch there) finds the present state. So each event
 * that says that a directory appeared at a place causes a check of that place, and the result of the check is
 * authoritative. If the check finds a directory that is already watched, the directory was moved there, and the place
 * where it was before is checked again. If the check finds no directory, the place is checked once more after the
 * pending events were read, because one of them explains the absence.
 *
 *     event ─► waiting ─► checking ─┬─► watched; if the directory is new, its subdirectories: waiting
 *                 ▲                 └─► missing ─► (tick) ─┬─► gone: an event has explained the absence
 *                 └────────────────────────────────────────┴─► waiting, and if it is missing again: rescan
 *
 * When the kernel has dropped events (IN_Q_OVERFLOW), a new round begins: every directory is checked and listed again.
 * At the end of the round, the directories that no check has found are forgotten.
 */
export class WatchedTree {
  readonly #parts: WatchedTreeParts;
  readonly #directories = new Map<number, WatchedDirectory>();
  readonly #places = new Map<string, Place>();
  readonly #moves = new Map<number, Move>();
  readonly #missing = new Set<Place>();
  #root: WatchedDirectory | undefined;
  #round = 1;
  /** Whether events were dropped, so that a rescan is reported at the end of this round. */
  #hasDropped = false;
  #lastUnknownKey = 0;
  #unwatched: number[] = [];
  /** Whether the watched directory was removed or renamed. */
  isGone = false;

  constructor(parts: WatchedTreeParts) {
    this.#parts = parts;
    this.#expect(undefined, "", "nothing");
  }

  /** Number of watched directories. */
  get size(): number {
    return this.#directories.size;
  }

  /** Number of places that must still be checked. */
  get unchecked(): number {
    return this.#places.size;
  }

  /** Whether `tick` must be called again: a rename is incomplete, or a check has found no directory at a place. */
  get isUnsettled(): boolean {
    return this.#moves.size > 0 || this.#missing.size > 0;
  }

  /** Processes an event. Returns false if its watch is unknown: no check has returned it yet, or it was forgotten. */
  take({ watch, mask, cookie, name }: InotifyEvent): boolean {
    const directory = this.#directories.get(watch);
    if ((mask & IN.Q_OVERFLOW) !== 0) this.#listAgain();
    else if (directory === undefined) return false;
    else if ((mask & (IN.IGNORED | IN.UNMOUNT | IN.MOVE_SELF)) !== 0) this.#ended(directory, (mask & IN.UNMOUNT) !== 0);
    else if (name === "") {
      // A change of any other directory is also reported by the watch of its parent.
      if (directory === this.#root) this.#parts.changes.add("ATTRIBUTES", "", true);
    } else this.#takeEntry(directory, name, mask, cookie);
    return true;
  }

  /** Call it when all events that the kernel had queued have been processed. */
  tick(): void {
    for (const [cookie, move] of this.#moves) {
      if (!move.isOld) {
        move.isOld = true;
        continue;
      }
      this.#moves.delete(cookie);
      if (move.change !== undefined) this.#parts.changes.complete(move.change, undefined);
      if (move.directory !== undefined && move.directory.parent === undefined) this.#forget(move.directory);
    }
    for (const place of this.#missing) place.state = "waiting";
    this.#missing.clear();
  }

  /** Returns the places to check next, with their paths. The caller must first remove the watches that `ended` lists. */
  next(most: number): {
    readonly places: readonly Place[];
    readonly paths: readonly string[];
    readonly ended: number[];
  } {
    const places: Place[] = [];
    const paths: string[] = [];
    const ended = this.#unwatched.filter((watch) => !this.#directories.has(watch));
    this.#unwatched = [];
    for (const [key, place] of this.#places) {
      if (places.length >= most) break;
      const { parent, state, name } = place;
      if (state !== "waiting") continue;
      // The watched directory is checked in a batch of its own, because its watch has another mask (IN_MOVE_SELF).
      if (parent === undefined && places.length > 0) break;
      if (parent !== undefined && this.#directories.get(parent.watch) !== parent) {
        this.#places.delete(key);
        continue;
      }
      const path = parent === undefined ? "" : this.#pathOf(parent, name);
      // The parent directory is being renamed, so its path is not known now.
      if (path === undefined) continue;
      if (parent !== undefined && this.#parts.isIgnored(path)) {
        this.#places.delete(key);
        continue;
      }
      place.state = "checking";
      place.round = this.#round;
      place.path = path;
      places.push(place);
      paths.push(path);
      if (parent === undefined) break;
    }
    if (this.#places.size === 0 && this.#hasDropped) this.#endRound();
    return { places, paths, ended };
  }

  /** Ends the watch of the tree if `watch`, which was found at its path, belongs to another directory. */
  checkRoot(watch: number): void {
    if (watch !== this.#root?.watch) this.#end();
  }

  /**
   * A rescan is sent to the client, which then lists directories. Those that are not watched yet may change before
   * their watch is added, so the client must list them again later.
   */
  rescanned(): void {
    for (const place of this.#places.values()) if (place.report === "created") place.report = "rescan";
  }

  /** Makes a place wait again, because it could not be checked this time. */
  putBack(place: Place): void {
    place.state = "waiting";
  }

  /** Processes the result of a check that has found a directory. The directory is watched now. */
  found(place: Place, { watch, names }: Found): void {
    const key = keyOf(place);
    const known = this.#directories.get(watch);
    const { parent, name } = place;
    const isCurrent = this.#places.get(key) === place;
    const isForgotten = parent !== undefined && this.#directories.get(parent.watch) !== parent;
    if (isCurrent && isForgotten) this.#places.delete(key);
    if (!isCurrent || isForgotten) {
      // An event has changed this place meanwhile, so the result is outdated. If the directory is still in the tree,
      // another check will find it.
      if (known === undefined) this.#unwatched.push(watch);
      return;
    }
    if (known !== undefined && parent?.isWithin(known) === true) {
      // The directory that was found is an ancestor of its own place, so one of them was renamed during the check.
      this.failed(place, "ESTALE");
      return;
    }
    this.#places.delete(key);
    if (parent === undefined && this.#root !== undefined && known !== this.#root) {
      this.#end();
      return;
    }
    const directory = known ?? new WatchedDirectory(watch);
    const believed = parent?.child(name);
    const isNamed = place.report === "difference" || (believed ?? known) !== undefined;
    const isOther = parent !== undefined && believed !== directory && isNamed;
    const report = isOther ? "rescan" : place.report;
    this.#directories.set(watch, directory);
    if (parent === undefined) this.#root = directory;
    else if (believed !== directory) this.#settle(directory, parent, name);
    const isListed = directory.round >= place.round && !isOther;
    if (report === "rescan" || (report === "created" && isListed)) this.#rescan(directory);
    if (isListed) return;
    directory.round = Math.max(directory.round, place.round);
    for (const text of names) this.#list(directory, text, report);
  }

  /** Processes a failed check. A missing directory is checked once more before it is reported. */
  failed(place: Place, errno: string): void {
    const key = keyOf(place);
    if (this.#places.get(key) !== place) return;
    const { parent, name } = place;
    const isMissing = MISSING.has(errno);
    if (isMissing && place.missingAt !== place.path) {
      place.missingAt = place.path;
      place.state = "missing";
      this.#missing.add(place);
      return;
    }
    this.#places.delete(key);
    if (parent === undefined) {
      this.#end();
      return;
    }
    const child = parent.detach(name);
    if (child !== undefined) this.#forget(child);
    // EXDEV means a mount point, whose contents belong to another file system: it is not reported.
    const path = this.#pathOf(parent, isMissing ? "" : name);
    if (path !== undefined && errno !== "EXDEV") this.#parts.changes.rescan(path, isMissing ? "" : errno);
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
      const child = isDirectory ? directory.detach(name) : undefined;
      const key = keyOf({ parent: directory, name });
      const { report: unreported = "difference" } = this.#places.get(key) ?? {};
      if (isDirectory) this.#places.delete(key);
      if ((mask & IN.DELETE) !== 0) {
        report("REMOVED");
        if (child !== undefined) this.#forget(child);
      } else {
        const change = path === undefined ? undefined : changes.hold(path, isDirectory);
        const isReported = change !== undefined && (unreported === "nothing" || unreported === "difference");
        this.#moves.set(cookie, { change, directory: child, isReported, isOld: false });
      }
    } else if ((mask & (IN.CREATE | IN.MOVED_TO)) !== 0) {
      const move = (mask & IN.MOVED_TO) === 0 ? undefined : this.#moves.get(cookie);
      if (move !== undefined) this.#moves.delete(cookie);
      // A check has already found this directory and reported its entries.
      if (move === undefined && directory.child(name)?.round === this.#round) return;
      if (move?.change === undefined) report("CREATED");
      else changes.complete(move.change, path);
      const moved = move?.directory?.parent === undefined ? move?.directory : undefined;
      if (moved !== undefined) this.#settle(moved, directory, name);
      const isKnown = moved !== undefined && move?.isReported === true;
      const unknown = move === undefined ? "created" : "rescan";
      if (isDirectory) this.#expect(directory, name, isKnown ? "difference" : unknown);
    } else for (const [bit, kind] of KINDS) if ((mask & bit) !== 0) report(kind);
  }

  /** Call it when the watch of a directory has ended, or when the directory that the client watches was renamed. */
  #ended(directory: WatchedDirectory, isUnmounted: boolean): void {
    const { parent, name } = directory;
    if (directory === this.#root) this.#end();
    else if (parent !== undefined) {
      parent.detach(name);
      if (isUnmounted) this.#expect(parent, name, "rescan");
    }
    this.#directories.delete(directory.watch);
    // A removed directory was empty, so its former subdirectories have been moved elsewhere.
    for (const child of directory.children) this.#markPathUnknown(directory.detach(child.name));
  }

  /** Call it if the new path is unknown: forgets the directory, unless it is found before the second tick. */
  #markPathUnknown(directory: WatchedDirectory | undefined): void {
    const move = { change: undefined, directory, isReported: false, isOld: false };
    if (directory !== undefined) this.#moves.set((this.#lastUnknownKey -= 1), move);
  }

  #list(directory: WatchedDirectory, text: string, report: Report): void {
    const path = this.#pathOf(directory, text.slice(1));
    const isDirectory = text.startsWith("/");
    if (path !== undefined && this.#parts.isIgnored(path)) return;
    if (report === "created") {
      if (path === undefined || text.startsWith("+")) this.#rescan(directory);
      else this.#parts.changes.add("CREATED", path, isDirectory);
    }
    if (isDirectory) this.#expect(directory, text.slice(1), report === "difference" ? "nothing" : report);
  }

  /** Asks the client to list a directory again, at its new path if it is being renamed. */
  #rescan(directory: WatchedDirectory): void {
    const path = this.#pathOf(directory, "");
    if (path === undefined) directory.top.hasChanged = true;
    // If events were dropped, everything is rescanned at the end of the round anyway.
    else if (!this.#hasDropped) this.#parts.changes.rescan(path);
  }

  #expect(parent: WatchedDirectory | undefined, name: string, report: Report): void {
    if (!this.#parts.isRecursive && parent !== undefined) return;
    const key = keyOf({ parent, name });
    const before = this.#places.get(key)?.report ?? "nothing";
    const most = REPORTS.indexOf(before) > REPORTS.indexOf(report) ? before : report;
    this.#places.set(key, { parent, name, report: most, state: "waiting", round: 0, path: "", missingAt: undefined });
  }

  /**
   * Moves a directory to the place where a check has found it. Its previous place is checked again. A directory that
   * was known at the new place has been moved elsewhere; pending events will explain both.
   */
  #settle(directory: WatchedDirectory, parent: WatchedDirectory, name: string): void {
    const { parent: before, name: nameBefore } = directory;
    if (before !== undefined) {
      before.detach(nameBefore);
      this.#expect(before, nameBefore, "rescan");
    }
    // Since this event, a check has found the new parent below this directory, so the event is outdated. A later check
    // will find the directory at its present place.
    const isOutdated = parent.isWithin(directory);
    this.#markPathUnknown(isOutdated ? directory : parent.detach(name));
    if (isOutdated) return;
    parent.attach(directory, name);
    if (!directory.hasChanged) return;
    directory.hasChanged = false;
    this.#rescan(directory);
  }

  /** Forgets a directory and all below it. The watches are removed later, because the running check may return them. */
  #forget(directory: WatchedDirectory): void {
    this.#directories.delete(directory.watch);
    this.#unwatched.push(directory.watch);
    for (const child of directory.children) this.#forget(child);
  }

  #listAgain(): void {
    this.#round += 1;
    this.#hasDropped = true;
    this.#expect(undefined, "", "nothing");
  }

  #endRound(): void {
    this.#hasDropped = false;
    for (const directory of this.#directories.values()) {
      if (directory.round === this.#round) continue;
      directory.parent?.detach(directory.name);
      this.#directories.delete(directory.watch);
      this.#unwatched.push(directory.watch);
    }
    this.#parts.changes.rescan("");
  }

  /** Path relative to the watched directory; undefined while the directory or an ancestor is being renamed. */
  #pathOf(directory: WatchedDirectory, name: string): string | undefined {
    return directory.pathFrom(this.#root, name);
  }
}

function keyOf({ parent, name }: Pick<Place, "parent" | "name">): string {
  return parent === undefined ? "/" : `${parent.watch}/${name}`;
}
