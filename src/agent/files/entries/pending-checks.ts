import type { Report, WatchedDirectory } from "./watched-directory.ts";

/** The nodes of a WatchedTree that must be checked. `WatchedDirectory.report` says what a check is to report. */
export class PendingChecks {
  readonly #waiting = new Set<WatchedDirectory>();
  /** Nodes for which a check has found no directory. The value of each is the path that was checked. */
  readonly #missing = new Map<WatchedDirectory, string>();
  /** Nodes for which a check has found no directory. They are checked again after the next call of `tick`. */
  readonly #paused = new Set<WatchedDirectory>();

  get size(): number {
    return this.#waiting.size + this.#paused.size;
  }

  /** Whether a missing node waits for the next tick. */
  get hasPaused(): boolean {
    return this.#paused.size > 0;
  }

  /** The nodes that can be checked now. */
  get waiting(): ReadonlySet<WatchedDirectory> {
    return this.#waiting;
  }

  /** Adds a node to check. The check reports what `report` says, or more if an earlier call requested more. */
  add(node: WatchedDirectory, report: Report): void {
    node.reportAtLeast(report);
    this.#paused.delete(node);
    this.#missing.delete(node);
    this.#waiting.add(node);
  }

  /** Removes a node, because its path need not be checked any more. */
  settle(node: WatchedDirectory): void {
    if (node.report === undefined) return;
    node.report = undefined;
    this.#paused.delete(node);
    this.#missing.delete(node);
    this.#waiting.delete(node);
  }

  /**
   * Lets a node wait for the next call of `tick`, because a check found no directory at `path`. If an earlier check
   * also found no directory at this path, does nothing and returns false.
   */
  pause(node: WatchedDirectory, path: string): boolean {
    if (this.#missing.get(node) === path) return false;
    this.#missing.set(node, path);
    this.#waiting.delete(node);
    this.#paused.add(node);
    return true;
  }

  /**
   * Call it when a directory above the node was moved. An earlier check that found no directory is then void, because
   * it used the old path of the node.
   */
  moved(node: WatchedDirectory): void {
    this.#missing.delete(node);
  }

  tick(): void {
    for (const node of this.#paused) this.#waiting.add(node);
    this.#paused.clear();
  }

  /** For each new directory that is not watched yet, one rescan will be reported instead of each of its entries. */
  rescanCreated(): void {
    for (const node of [...this.#waiting, ...this.#paused]) if (node.report === "created") node.report = "rescan";
  }
}
