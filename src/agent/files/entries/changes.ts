import { WATCH_CHANGES_LIMIT, WATCH_CHANGES_LIMIT_BYTES } from "../../domain/index.ts";

/** What can happen to an entry (enum WatchEventKind). */
export type ChangeKind = "CREATED" | "MODIFIED" | "CLOSED" | "ATTRIBUTES" | "REMOVED" | "MOVED" | "RESCAN";

/** A change of an entry. Each character of a path is a byte, and the watched directory's own path is empty. */
export interface Change {
  readonly kind: ChangeKind;
  readonly path: string;
  /** The new path of a moved entry; empty for other kinds. */
  readonly newPath: string;
  readonly isDirectory: boolean;
  /** Only for a rescan: why changes below the directory are not reported one by one. Empty for other changes. */
  readonly errno: string;
}

/**
 * The first event of a rename (IN_MOVED_FROM). If the second event (IN_MOVED_TO) follows, the change becomes a move,
 * otherwise a removal. `isHeld` is true until this is decided. Until then, neither this change nor any later one is
 * sent.
 */
export type HeldMove = { -readonly [Name in keyof Change]: Change[Name] } & { isHeld: boolean; isQueued: boolean };

/** A bit for each kind of change. While a change of an entry is queued, no second change of the same kind is queued. */
const BITS: Readonly<Record<ChangeKind, number>> = {
  CREATED: 1,
  REMOVED: 2,
  MODIFIED: 4,
  CLOSED: 8,
  ATTRIBUTES: 16,
  MOVED: 0,
  RESCAN: 0,
};
const PLACE_BITS = BITS.CREATED | BITS.REMOVED;
/**
 * The changes that wait to be sent. Repeated changes of one path are merged, because the client can only look up the
 * final state anyway. If there are too many changes, a rescan of their deepest common directory replaces them.
 */
export class Changes {
  readonly #isReported: (path: string) => boolean;
  #queue: (Change | HeldMove)[] = [];
  #bytes = 0;
  /** The kinds of the changes that are queued for each path, as bits. */
  readonly #seen = new Map<string, number>();
  /**
   * Directories for which a rescan is queued. Changes below them are not queued, because the client will list them
   * anyway. A directory is removed from this list in two cases:
   *
   * - An entry is moved to a path in the directory or above it.
   * - Another directory, above this one, is removed or renamed.
   */
  #rescans: string[] = [];

  constructor(isReported: (path: string) => boolean) {
    this.#isReported = isReported;
  }

  add(kind: Exclude<ChangeKind, "MOVED" | "RESCAN">, path: string, isDirectory: boolean): void {
    const seen = this.#seen.get(path) ?? 0;
    if ((seen & BITS[kind]) !== 0 || !this.#isReported(path)) return;
    if (kind === "REMOVED" && isDirectory) this.#seen.clear();
    if (this.#isCovered(path)) return;
    if (kind === "REMOVED" && isDirectory) this.#uncoverBelow(path);
    this.#seen.set(path, (BITS[kind] & PLACE_BITS) !== 0 ? BITS[kind] : seen | BITS[kind]);
    this.#push({ kind, path, newPath: "", isDirectory, errno: "" });
  }

  /** Queues the first half of a rename, before it is known whether the entry moves to a watched directory. */
  hold(path: string, isDirectory: boolean): HeldMove {
    const change = { kind: "REMOVED", path, newPath: "", isDirectory, errno: "" } as const;
    const move: HeldMove = { ...change, isHeld: true, isQueued: !this.#isCovered(path) };
    // After the rename of a directory, a path below it may mean another entry. So a new change of such a path must be
    // queued even if a change of the same kind is already queued.
    if (isDirectory) this.#seen.clear();
    if (!move.isQueued) return move;
    if (isDirectory) this.#uncoverBelow(path);
    this.#seen.set(path, BITS.REMOVED);
    this.#push(move);
    return move;
  }

  /**
   * Completes a rename. `newPath` is the entry's new path, or undefined if the entry was moved to a directory that is
   * not watched.
   */
  complete(move: HeldMove, newPath: string | undefined): void {
    move.isHeld = false;
    if (newPath === undefined) return;
    if (!move.isQueued) {
      // A rescan of the old path is queued. The client may list the old path only after the rename, and then never sees
      // the entry there. So the entry is reported as new at its new path.
      if (move.isDirectory) this.rescan(newPath);
      else this.add("CREATED", newPath, false);
      return;
    }
    move.kind = "MOVED";
    move.newPath = newPath;
    this.#bytes += newPath.length;
    this.#rescans = this.#rescans.filter((path) => !isWithin(path, newPath) && !isWithin(newPath, path));
    if (move.isDirectory) this.#seen.clear();
    else this.#seen.delete(newPath);
  }

  /** Queues a rescan: changes below this directory were not observed one by one. */
  rescan(path: string, errno = ""): void {
    if (this.#isCovered(path)) return;
    this.#push({ kind: "RESCAN", path, newPath: "", isDirectory: true, errno });
    if (errno === "") this.#rescans.push(path);
  }

  /** Returns the changes in the queue and removes them. Stops at a rename whose second event may still arrive. */
  take(): Change[] {
    const held = this.#queue.findIndex(isHeld);
    const taken = this.#queue.splice(0, held < 0 ? this.#queue.length : held);
    this.#bytes = this.#queue.reduce((bytes, { path }) => bytes + path.length, 0);
    this.#seen.clear();
    this.#rescans = [];
    return taken.filter(
      ({ kind, path, newPath }) =>
        kind === "RESCAN" || this.#isReported(path) || (kind === "MOVED" && this.#isReported(newPath)),
    );
  }

  #push(change: Change): void {
    this.#queue.push(change);
    this.#bytes += change.path.length;
    if (this.#queue.length <= WATCH_CHANGES_LIMIT && this.#bytes <= WATCH_CHANGES_LIMIT_BYTES) return;
    const paths = this.#queue.flatMap(({ path, newPath }) => (newPath === "" ? [path] : [path, newPath]));
    const isMoving = this.#queue.some(isHeld);
    this.#queue = this.#queue.filter(({ errno }) => errno !== "").slice(0, 100);
    this.#bytes = 0;
    this.#seen.clear();
    this.rescan(isMoving ? "" : commonDirectory(paths));
  }

  /** Forgets rescans below a directory that is gone, because another directory may soon have the same path. */
  #uncoverBelow(directory: string): void {
    this.#rescans = this.#rescans.filter((path) => path === directory || !isWithin(path, directory));
  }

  /** Whether a queued rescan will make the client list this path. If so, a change of the path need not be queued. */
  #isCovered(path: string): boolean {
    return this.#rescans.some((rescan) => isWithin(path, rescan));
  }
}

function isHeld(change: Change | HeldMove): boolean {
  return "isHeld" in change && change.isHeld;
}

function isWithin(path: string, directory: string): boolean {
  return directory === "" || path === directory || path.startsWith(`${directory}/`);
}

/** The deepest directory that contains all of these paths. */
function commonDirectory([first = "", ...others]: readonly string[]): string {
  let common = parentOf(first);
  for (const path of others) while (common !== "" && !path.startsWith(`${common}/`)) common = parentOf(common);
  return common;
}

function parentOf(path: string): string {
  return path.slice(0, Math.max(0, path.lastIndexOf("/")));
}
