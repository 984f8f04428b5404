/** A part whose code is loaded at its first use, because few agents need it. */
export class Later<Part> {
  readonly #build: () => Promise<Part>;
  #part: Promise<Part> | undefined;

  constructor(build: () => Promise<Part>) {
    this.#build = build;
  }

  /** Resolves with the part, built if it is not yet. */
  get(): Promise<Part> {
    return (this.#part ??= this.#build());
  }

  /** Calls `use` if the part is built or being built. */
  ifBuilt(use: (part: Part) => void): void {
    // `get` reports the failure to its caller.
    this.#part?.then(use, () => undefined);
  }
}
