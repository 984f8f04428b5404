/** Names that are remembered. Further names of a file become files of their own. */
const LIMIT = 1_000_000;

/** The first names under which files that have several (hard links) were copied. */
export class LinkedNames {
  readonly #names = new Map<string, Buffer>();
  /** The files, by these names, of which each character is a byte. */
  readonly #files = new Map<string, string>();

  /** The name under which the file was copied before; undefined: this one is the first, and is remembered. */
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

  /** A name could not be copied: the next one of its file is the first. */
  forget(name: Buffer): void {
    const key = name.toString("latin1");
    const file = this.#files.get(key);
    if (file === undefined) return;
    this.#files.delete(key);
    this.#names.delete(file);
  }
}
