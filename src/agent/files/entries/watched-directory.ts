/**
 * What to report to the client when a check finds a directory at a path. Each level reports more than the one before
 * it:
 *
 * - "nothing": nothing is reported.
 * - "difference": a rescan is reported only if the directory is not the one that was known at this path.
 * - "created": each entry of the directory is reported as created.
 * - "rescan": a rescan is always reported.
 */
const REPORTS = ["nothing", "difference", "created", "rescan"] as const;
export type Report = (typeof REPORTS)[number];

/** Result of the check of a path at which a directory was found. */
export interface Found {
  readonly watch: number;
  readonly directories: readonly string[];
  /** Names of the entries that are not directories. Empty if the check had to list only directories. */
  readonly files: readonly string[];
  /** Whether the directory has more files than `files` lists. */
  readonly isIncomplete: boolean;
}

/**
 * A node of the watched tree: either a watched directory, or a path at which a directory is expected that is not
 * watched yet. While a watched directory is being renamed, its node has no parent.
 */
export class WatchedDirectory {
  /** The watch of inotify(7); negative if the directory is not watched yet. */
  watch = -1;
  parent: WatchedDirectory | undefined;
  name: string;
  /** Number of the round (see WatchedTree) in which the directory was last listed. */
  round = 0;
  /** Value of WatchedTree's tick counter when a check last found the directory. */
  tick = 0;
  /** Whether something in the directory, or below it, changed while its path was not known. */
  hasChanged = false;
  /** What to report to the client after the next check of this path; undefined if the path need not be checked. */
  report: Report | undefined;
  /** Undefined if there are no children, as in most directories: an empty map takes more memory than the other fields. */
  #children: Map<string, WatchedDirectory> | undefined;

  constructor(name: string) {
    this.name = name;
  }

  get isWatched(): boolean {
    return this.watch >= 0;
  }

  get children(): readonly WatchedDirectory[] {
    return [...(this.#children?.values() ?? [])];
  }

  child(name: string): WatchedDirectory | undefined {
    return this.#children?.get(name);
  }

  attach(child: WatchedDirectory, name: string): void {
    child.parent = this;
    child.name = name;
    (this.#children ??= new Map()).set(name, child);
  }

  detach(): void {
    if (this.parent !== undefined) this.parent.#children?.delete(this.name);
    this.parent = undefined;
  }

  /** Raises the level of what the next check reports; never lowers it. */
  reportAtLeast(report: Report): void {
    if (this.report === undefined || REPORTS.indexOf(report) > REPORTS.indexOf(this.report)) this.report = report;
  }

  /** The topmost ancestor, or this directory itself if it has no parent. */
  get top(): WatchedDirectory {
    return this.parent?.top ?? this;
  }

  isWithin(other: WatchedDirectory): boolean {
    return this === other || this.parent?.isWithin(other) === true;
  }

  /**
   * The path of the entry `name`, relative to `root`; if `name` is empty, the path of this directory. Undefined if this
   * directory is currently not below `root`.
   */
  pathFrom(root: WatchedDirectory, name: string): string | undefined {
    if (this.parent === undefined) return this === root ? name : undefined;
    return this.parent.pathFrom(root, name === "" ? this.name : `${this.name}/${name}`);
  }
}
