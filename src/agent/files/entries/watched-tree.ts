import { type InotifyEvent, IN } from "../open/inotify.ts";
import type { ChangeKind, Changes, HeldMove } from "./changes.ts";
import { WatchedDirectory } from "./watched-directory.ts";

/** A name at which there should be a directory that is to be watched; without a parent the watched directory itself. */
export interface Place {
  readonly parent: WatchedDirectory | undefined;
  readonly name: string;
  /** What the client is to learn of what is in it. */
  report: Report;
  state: "waiting" | "checking" | "missing";
  /** In which its check began. */
  round: number;
  /** The path of the check, and the one at which the last check found nothing. */
  path: string;
  missingAt: string | undefined;
}

/** Nothing; a rescan if it is another directory than the one that is believed to be there; every entry; a rescan. */
const REPORTS = ["nothing", "difference", "created", "rescan"] as const;
type Report = (typeof REPORTS)[number];

/** What the check of a place found in the directory: names behind `/` (a directory) or `-`, and a `+` for more. */
export interface Found {
  readonly watch: number;
  readonly names: readonly string[];
}

interface Move {
  readonly change: HeldMove | undefined;
  /** What moves, if it is watched. */
  readonly directory: WatchedDirectory | undefined;
  /** The client knows what is in it. */
  readonly isReported: boolean;
  isOld: boolean;
}

/** What a tree needs. */
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
/** No directory is at the place: the event that says why has come, or comes soon. */
const MISSING: ReadonlySet<string> = new Set(["ENOENT", "ENOTDIR", "ELOOP", "ESTALE"]);

/**
 * Which directory each watch of inotify(7) belongs to, and what its events mean. It makes no system call.
 *
 * Events tell of the past, and a check of a place finds the present. So each event that puts a directory at a place has
 * that place checked, and what a check finds counts: a known watch moves there, and the place where it was is checked
 * again. A place without a directory is checked once more, after the events that tell why were read.
 *
 *     event ─► waiting ─► checking ─┬─► watched; the directories in it, if it is new: waiting
 *                 ▲                 └─► missing ─► (tick) ─┬─► gone: an event has told why
 *                 └────────────────────────────────────────┴─► waiting, and if it is missing again: rescan
 *
 * When the kernel has dropped events (IN_Q_OVERFLOW) a new round begins: every directory is checked and listed again,
 * and those that no check has found are forgotten.
 */
export class WatchedTree {
  readonly #parts: WatchedTreeParts;
  readonly #directories = new Map<number, WatchedDirectory>();
  readonly #places = new Map<string, Place>();
  readonly #moves = new Map<number, Move>();
  readonly #missing = new Set<Place>();
  #root: WatchedDirectory | undefined;
  #round = 1;
  /** Events were dropped in this round: its end is reported. */
  #hasDropped = false;
  #strays = 0;
  #unwatched: number[] = [];
  /** The watched directory was removed or renamed. */
  isGone = false;

  constructor(parts: WatchedTreeParts) {
    this.#parts = parts;
    this.#expect(undefined, "", "nothing");
  }

  /** Directories that are watched. */
  get size(): number {
    return this.#directories.size;
  }

  /** Places that are still to be checked. */
  get unchecked(): number {
    return this.#places.size;
  }

  /** There is something for `tick` to do. */
  get isUnsettled(): boolean {
    return this.#moves.size > 0 || this.#missing.size > 0;
  }

  /** Takes an event. False: it is of a watch that no check has returned yet, or that is forgotten. */
  take({ watch, mask, cookie, name }: InotifyEvent): boolean {
    const directory = this.#directories.get(watch);
    if ((mask & IN.Q_OVERFLOW) !== 0) this.#listAgain();
    else if (directory === undefined) return false;
    else if ((mask & (IN.IGNORED | IN.UNMOUNT | IN.MOVE_SELF)) !== 0) this.#ended(directory, (mask & IN.UNMOUNT) !== 0);
    else if (name === "") {
      // Of any other directory its parent reports the same.
      if (directory === this.#root) this.#parts.changes.add("ATTRIBUTES", "", true);
    } else this.#takeEntry(directory, name, mask, cookie);
    return true;
  }

  /** All events that there were have been taken. */
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

  /** Places to be checked next, with their paths, and watches to be ended before. */
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
      // By itself: its watch reports its own renaming too.
      if (parent === undefined && places.length > 0) break;
      if (parent !== undefined && this.#directories.get(parent.watch) !== parent) {
        this.#places.delete(key);
        continue;
      }
      const path = parent === undefined ? "" : this.#pathOf(parent, name);
      // Its parent is being renamed.
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

  /** The path of the watched directory still names the directory with this watch. */
  checkRoot(watch: number): void {
    if (watch !== this.#root?.watch) this.#end();
  }

  /** The client lists directories now, perhaps some that are not watched yet: it must list these again. */
  rescanned(): void {
    for (const place of this.#places.values()) if (place.report === "created") place.report = "rescan";
  }

  /** A place was not checked after all. */
  putBack(place: Place): void {
    place.state = "waiting";
  }

  /** A check has found a directory, which is watched now. */
  found(place: Place, { watch, names }: Found): void {
    const key = keyOf(place);
    const known = this.#directories.get(watch);
    const { parent, name } = place;
    const isCurrent = this.#places.get(key) === place;
    const isForgotten = parent !== undefined && this.#directories.get(parent.watch) !== parent;
    if (isCurrent && isForgotten) this.#places.delete(key);
    if (!isCurrent || isForgotten) {
      // Something else was said of the place meanwhile. Another check will find the directory, if it is in the tree.
      if (known === undefined) this.#unwatched.push(watch);
      return;
    }
    if (known !== undefined && parent?.isWithin(known) === true) {
      // Its path led to a directory that is above it: one of the two was renamed.
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

  /** A check has failed. */
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
    // A mount point is another file system's.
    const path = this.#pathOf(parent, isMissing ? "" : name);
    if (path !== undefined && errno !== "EXDEV") this.#parts.changes.rescan(path, isMissing ? "" : errno);
  }

  /** The watched directory is at its path no more. */
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
      // A check has found it, and what is in it has been reported.
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

  /** A watch has ended, or that of the watched directory means no more what it did. */
  #ended(directory: WatchedDirectory, isUnmounted: boolean): void {
    const { parent, name } = directory;
    if (directory === this.#root) this.#end();
    else if (parent !== undefined) {
      parent.detach(name);
      if (isUnmounted) this.#expect(parent, name, "rescan");
    }
    this.#directories.delete(directory.watch);
    // A removed directory is empty: what was in it is elsewhere.
    for (const child of directory.children) this.#astray(directory.detach(child.name));
  }

  /** A directory is at an unknown place: it is forgotten, unless an event or a check finds it before the second tick. */
  #astray(directory: WatchedDirectory | undefined): void {
    const move = { change: undefined, directory, isReported: false, isOld: false };
    if (directory !== undefined) this.#moves.set((this.#strays -= 1), move);
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

  /** Has the client list a directory; if that is being renamed, then at its new place. */
  #rescan(directory: WatchedDirectory): void {
    const path = this.#pathOf(directory, "");
    if (path === undefined) directory.top.hasChanged = true;
    // The end of this round is a rescan of everything.
    else if (!this.#hasDropped) this.#parts.changes.rescan(path);
  }

  #expect(parent: WatchedDirectory | undefined, name: string, report: Report): void {
    if (!this.#parts.isRecursive && parent !== undefined) return;
    const key = keyOf({ parent, name });
    const before = this.#places.get(key)?.report ?? "nothing";
    const most = REPORTS.indexOf(before) > REPORTS.indexOf(report) ? before : report;
    this.#places.set(key, { parent, name, report: most, state: "waiting", round: 0, path: "", missingAt: undefined });
  }

  /** Puts a directory at a place. What was there, or where it was, has changed: an event is still to be read. */
  #settle(directory: WatchedDirectory, parent: WatchedDirectory, name: string): void {
    const { parent: before, name: nameBefore } = directory;
    if (before !== undefined) {
      before.detach(nameBefore);
      this.#expect(before, nameBefore, "rescan");
    }
    // An event tells of the past, and checks have found that the two were renamed since: one will find it again.
    const isPast = parent.isWithin(directory);
    this.#astray(isPast ? directory : parent.detach(name));
    if (isPast) return;
    parent.attach(directory, name);
    if (!directory.hasChanged) return;
    directory.hasChanged = false;
    this.#rescan(directory);
  }

  /** Ends its watch and those below it, before the next check: one that is on its way may still find them. */
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

  /** From the watched directory on; undefined: a directory above it is being renamed. */
  #pathOf(directory: WatchedDirectory, name: string): string | undefined {
    return directory.pathFrom(this.#root, name);
  }
}

function keyOf({ parent, name }: Pick<Place, "parent" | "name">): string {
  return parent === undefined ? "/" : `${parent.watch}/${name}`;
}
