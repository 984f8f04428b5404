/** A directory that is watched, and its place among the others. While a rename of it is not complete it has no parent. */
export class WatchedDirectory {
  readonly watch: number;
  parent: WatchedDirectory | undefined;
  name = "";
  /** When it was last listed: see WatchedTree. */
  round = 0;
  /** Something in it changed while its path was not known. */
  hasChanged = false;
  /** Undefined: none. Most directories are leaves, and an empty map takes more memory than all the rest. */
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

  /** The directory above it that has no parent; itself if it has none. */
  get top(): WatchedDirectory {
    return this.parent?.top ?? this;
  }

  isWithin(other: WatchedDirectory): boolean {
    return this === other || this.parent?.isWithin(other) === true;
  }

  /** The path of an entry in it (empty: its own) from a directory on; undefined: it is not in that now. */
  pathFrom(root: WatchedDirectory | undefined, name: string): string | undefined {
    if (this.parent === undefined) return this === root ? name : undefined;
    return this.parent.pathFrom(root, name === "" ? this.name : `${this.name}/${name}`);
  }
}
