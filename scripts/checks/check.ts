/** One thing that must hold for the whole repository. */
export interface Check {
  readonly name: string;
  /** Resolves to what is wrong and how to mend it; empty when nothing is. */
  readonly run: () => Promise<string>;
}
