import type { ParseArgsConfig } from "node:util";

/**
 * What a shell offers for a word: names of local files or folders; paths of the sandbox ("path"); those after a colon,
 * else local files ("either"); names of kept commands or sandboxes; fixed words; or nothing.
 */
export type Completes = "file" | "folder" | "path" | "either" | "exec" | "sandbox" | "nothing" | readonly string[];

type ParserOption = NonNullable<ParseArgsConfig["options"]>[string];

/** An option of a command, for the parser, for its help text and for the shells' completion. */
export interface Option extends ParserOption {
  /** Name of its value in the help; only with type string. */
  readonly argument?: string;
  readonly help: string;
  /** What a shell completes for its value. Default: nothing. */
  readonly completes?: Completes;
  /** The help topic that describes it for all commands that have it. */
  readonly topic?: "connection" | undefined;
}

/** Options by their long names. */
export type Options = Readonly<Record<string, Option>>;
