/** A watched directory with its position in the tree. While it is being renamed, it has no parent. */
export class WatchedDirectory {
  readonly watch: number;
  parent: WatchedDirectory | undefined;
  name = "";
  /** Number of the round (see WatchedTree) in which the directory was last listed. */
  round = 0;
  /** Whether something in the directory, or below it, changed while its path was not known. */
  hasChanged = false;
  /**
   * Undefined if there are no children. Most directories have none, and an empty map takes more memory than the other
   * fields.
   */
  #children: Map<string, WatchedDirectory> | undefined;

  constructor(watch: number) {
    this.watch = watch;
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

  detach(name: string): WatchedDirectory | undefined {
    const child = this.#children?.get(name);
    if (child === undefined) return undefined;
    this.#children?.delete(name);
    child.parent = undefined;
    return child;
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
  pathFrom(root: WatchedDirectory | undefined, name: string): string | undefined {
    if (this.parent === undefined) return this === root ? name : undefined;
    return this.parent.pathFrom(root, name === "" ? this.name : `${this.name}/${name}`);
  }
}
