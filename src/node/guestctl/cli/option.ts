import { parseArgs } from "node:util";

/**
 * What a shell offers for a word: local files or directories, names of kept commands or of sandboxes, paths in the
 * sandbox ("path"), fixed words, or nothing. "either" offers paths in the sandbox if the word has a colon before the
 * path, and local files otherwise.
 */
export type Completes = "file" | "directory" | "path" | "either" | "exec" | "sandbox" | "nothing" | readonly string[];

/** An option of a command. The parser, the help text and the shell completion use it. */
export interface Option {
  readonly short?: string;
  /** Name of the option's value in the help. Undefined if the option has no value. */
  readonly argument?: string;
  /** Whether the option may be given several times. */
  readonly multiple?: boolean;
  readonly help: string;
  /** Other spellings, without dashes, such as those of other tools. The help does not show them. */
  readonly also?: readonly string[];
  /**
   * Whether the option is accepted without any effect, for users of other tools who type it. Neither the help nor the
   * completion shows it.
   */
  readonly isIgnored?: boolean;
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

/** Parses a command line into values and tokens. With `isStrict`, throws TypeError if it is invalid. */
export function parsed(args: readonly string[], options: Options, isStrict: boolean): Line {
  const names = new Map<string, string>();
  const known = Object.entries(options).flatMap(([name, option]) => {
    const { short, multiple } = option;
    const common = { type: option.argument === undefined ? "boolean" : "string", multiple: multiple === true } as const;
    const others = (option.also ?? []).map((spelling) => {
      // parseArgs accepts a short option only together with a long name. Make up a long name that nobody can type,
      // because it contains "=".
      const long = spelling.length === 1 ? `${name}=${spelling}` : spelling;
      names.set(long, name);
      return [long, { ...common, ...(spelling.length === 1 && { short: spelling }) }] as const;
    });
    return [[name, { ...common, ...(short !== undefined && { short }) }] as const, ...others];
  });
  const given = { args: [...args], options: Object.fromEntries(known) };
  const line = parseArgs({ ...given, allowPositionals: true, strict: isStrict, tokens: true });
  if (!line.tokens.some((token) => token.kind === "option" && names.has(token.name))) return line;
  return withMainNames(line, names);
}

/** Replaces other spellings of options by the options' names. */
function withMainNames({ positionals, tokens, ...line }: Line, names: ReadonlyMap<string, string>): Line {
  const values: Readonly<Record<string, unknown>> = line.values;
  const mainNames = new Set(names.values());
  const others = Object.entries(values).filter(([name]) => !names.has(name) && !mainNames.has(name));
  const merged: Record<string, unknown> = Object.fromEntries(others);
  const renamed = tokens.map((token) =>
    token.kind === "option" ? { ...token, name: names.get(token.name) ?? token.name } : token,
  );
  for (const [index, token] of renamed.entries()) {
    if (token.kind !== "option" || !mainNames.has(token.name)) continue;
    const given = tokens[index];
    const isMultiple = given?.kind === "option" && Array.isArray(values[given.name]);
    const value = token.value ?? true;
    merged[token.name] = isMultiple ? [merged[token.name] ?? [], value].flat() : value;
  }
  return { values: merged, positionals, tokens: renamed };
}

/** The options that the help and the completion show. */
export function shown(options: Options): Options {
  return Object.fromEntries(Object.entries(options).filter(([, { isIgnored }]) => isIgnored !== true));
}

/**
 * Creates the option for spellings that other tools have and that guestctl ignores, such as "-f --force". They have no
 * value.
 */
export function ignored(spellings: string): Options {
  const names = spellings.split(" ").map((spelling) => spelling.replace(/^--?/, ""));
  const [name = "", ...also] = names.toSorted((a, b) => b.length - a.length);
  // The parser needs a long name. If there is none, use a name that nobody can type, such as `=k`.
  const long = name.length === 1 ? `=${name}` : name;
  return { [long]: { isIgnored: true, help: "", also: name.length === 1 ? names : also } };
}
