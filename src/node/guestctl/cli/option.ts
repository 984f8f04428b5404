import { parseArgs } from "node:util";

/**
 * What a shell offers for a word: names of local files or folders, of kept commands or of sandboxes; paths of the
 * sandbox ("path"); fixed words; or nothing. For "either" it offers paths of the sandbox after a colon, else local
 * files.
 */
export type Completes = "file" | "folder" | "path" | "either" | "exec" | "sandbox" | "nothing" | readonly string[];

/** An option of a command, for the parser, for its help text and for the shells' completion. */
export interface Option {
  readonly short?: string;
  /** Name of its value in the help. Without one it has no value. */
  readonly argument?: string;
  /** It may be given several times. */
  readonly multiple?: boolean;
  readonly help: string;
  /** What a shell completes for its value. Default: nothing. */
  readonly completes?: Completes;
  /** The help topic that describes it for all commands that have it. */
  readonly topic?: "connection" | undefined;
}

/** Options by their long names. */
export type Options = Readonly<Record<string, Option>>;

type Value<Each extends Option> = Each extends { readonly argument: string } ? string : boolean;

/** The values of a command line, by the long names of the options. */
export type Values<Own extends Options> = {
  readonly [Name in keyof Own]?:
    | (Own[Name] extends { readonly multiple: true } ? Value<Own[Name]>[] : Value<Own[Name]>)
    | undefined;
};

type Line = ReturnType<typeof parseArgs<{ allowPositionals: true; strict: boolean; tokens: true }>>;

/** What a command line says, and its parts in their order. Throws TypeError for a wrong one if it `isStrict`. */
export function parsed(args: readonly string[], options: Options, isStrict: boolean): Line {
  const known = Object.entries(options).map(([name, option]) => {
    return [name, { ...option, type: option.argument === undefined ? "boolean" : "string" }] as const;
  });
  const given = { args: [...args], options: Object.fromEntries(known) };
  return parseArgs({ ...given, allowPositionals: true, strict: isStrict, tokens: true });
}
