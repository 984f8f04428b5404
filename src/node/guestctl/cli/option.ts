import { parseArgs } from "node:util";

/**
 * What a shell offers for a word: local files or directories, names of kept commands or of sandboxes, paths in the
 * sandbox ("path"), fixed words, or nothing. "either": paths in the sandbox after a colon, else local files.
 */
export type Completes = "file" | "directory" | "path" | "either" | "exec" | "sandbox" | "nothing" | readonly string[];

/** An option of a command. The parser, the help text and the shell completion use it. */
export interface Option {
  readonly short?: string;
  /** Name of the option's value in the help. Undefined: the option has no value. */
  readonly argument?: string;
  /** Whether the option may be given several times. */
  readonly multiple?: boolean;
  readonly help: string;
  /** What a shell completes for the value. Default: nothing. */
  readonly completes?: Completes;
  /** The help topic that describes the option, for options that many commands share. */
  readonly topic?: "connection" | undefined;
}

/** Options by their long names. */
export type Options = Readonly<Record<string, Option>>;

type Value<Each extends Option> = Each extends { readonly argument: string } ? string : boolean;

/** The parsed values, by the long names of the options. */
export type Values<Own extends Options> = {
  readonly [Name in keyof Own]?:
    | (Own[Name] extends { readonly multiple: true } ? Value<Own[Name]>[] : Value<Own[Name]>)
    | undefined;
};

type Line = ReturnType<typeof parseArgs<{ allowPositionals: true; strict: boolean; tokens: true }>>;

/** Parses a command line into values and tokens. Throws TypeError for an invalid one if `isStrict`. */
export function parsed(args: readonly string[], options: Options, isStrict: boolean): Line {
  const known = Object.entries(options).map(([name, option]) => {
    return [name, { ...option, type: option.argument === undefined ? "boolean" : "string" }] as const;
  });
  const given = { args: [...args], options: Object.fromEntries(known) };
  return parseArgs({ ...given, allowPositionals: true, strict: isStrict, tokens: true });
}
