import type { ParseArgsOptionDescriptor } from "node:util";

/** What a shell offers for a word: names of local files or folders, of contexts, fixed words, or nothing. */
export type Completes = "file" | "folder" | "context" | "nothing" | readonly string[];

/** An option of a command, for the parser, for its help text and for the shells' completion. */
export interface Option extends ParseArgsOptionDescriptor {
  /** What its value is called; only with type string. */
  readonly argument?: string;
  readonly help: string;
  /** What its value may be. Default: nothing that a shell could offer. */
  readonly completes?: Completes;
}

/** Options by their long names. */
export type Options = Readonly<Record<string, Option>>;
