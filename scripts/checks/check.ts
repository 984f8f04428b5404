/** One thing that must hold for the whole repository. */
export interface Check {
  readonly name: string;
  /** Whether git has to tell the files that belong to the repository. */
  readonly readsRepository?: true;
  /** Resolves to what is wrong and how to mend it; empty when nothing is. */
  readonly run: () => Promise<string>;
}
