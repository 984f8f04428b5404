/** Limit on remembered names. Above it, further names of a file are copied as separate files. */
const LIMIT = 1_000_000;

/** Remembers under which of its names each file with several hard links was copied first: its "first name". */
export class LinkedNames {
  readonly #names = new Map<string, Buffer>();
  /**
   * The key of each file in `#names`, by the first name under which the file was copied. The name is decoded as latin1,
   * which keeps every byte.
   */
  readonly #files = new Map<string, string>();

  /**
   * Returns the first name under which this file was copied. If the file was not copied before, remembers `name` as its
   * first name and returns undefined.
   */
  firstOf({
    name,
    stats,
  }: {
    readonly name: Buffer;
    readonly stats: { readonly dev: bigint; readonly ino: bigint; readonly nlink: bigint; isFile(): boolean };
  }): Buffer | undefined {
    if (stats.nlink < 2n || !stats.isFile()) return undefined;
    const file = `${stats.dev} ${stats.ino}`;
    const first = this.#names.get(file);
    if (first === undefined && this.#names.size < LIMIT) {
      this.#names.set(file, name);
      this.#files.set(name.toString("latin1"), file);
    }
    return first;
  }

  /** Forgets a first name that could not be copied. The next name of the same file then becomes its first name. */
  forget(name: Buffer): void {
    const key = name.toString("latin1");
    const file = this.#files.get(key);
    if (file === undefined) return;
    this.#files.delete(key);
    this.#names.delete(file);
  }
}
