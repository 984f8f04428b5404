import { parseArgs, type ParseArgsOptionDescriptor } from "node:util";
import { wrap } from "../domain/index.ts";
import { UsageError } from "./errors.ts";

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
type Options = Readonly<Record<string, Option>>;

/** The process that guestctl runs as: arguments and environment come from it, output goes to it. */
export type Host = NodeJS.Process;

/** Options of every command. */
const COMMON_OPTIONS = {
  json: { type: "boolean", help: "output for programs" },
  help: { type: "boolean", short: "h", help: "this text" },
} as const;

/** What a command line says. */
export type Parsed<Own extends Options> = ReturnType<
  typeof parseArgs<{ options: Own & typeof COMMON_OPTIONS; allowPositionals: true }>
>;

/** What a subcommand is made of. */
export interface CommandParts<Own extends Options> {
  /** What follows "guestctl", a line for each form. */
  readonly usage: readonly string[];
  /** What it does, in full lines. */
  readonly about: string;
  readonly options: Own;
  /** What else there is to know, in full lines. */
  readonly notes?: string;
  /** Exit statuses, in full lines. */
  readonly statuses: string;
  /** Arguments, from "guestctl" on. */
  readonly examples: readonly string[];
  /** What a shell offers for the positional arguments, by their place; the last is for all that follow. */
  readonly completes?: readonly Completes[];
  /** Options end at the first positional argument: the rest belongs to the command that it names. */
  readonly takesCommand?: boolean;
  run(parsed: Parsed<Own>, host: Host): Promise<number>;
}

/** A subcommand. */
export interface Command {
  /** All of them, the common ones included. */
  readonly options: Options;
  readonly completes: readonly Completes[];
  readonly takesCommand: boolean;
  /** Runs with the arguments that follow the name. Resolves with the exit status and never rejects. */
  run(args: readonly string[], host: Host): Promise<number>;
}

/** Makes a subcommand: parses its command line, answers --help, and reports what it fails with. */
export function defineCommand<const Own extends Options>(parts: CommandParts<Own>): Command {
  const options: Options = { ...parts.options, ...COMMON_OPTIONS };
  const takesCommand = parts.takesCommand === true;
  return {
    options,
    completes: parts.completes ?? [],
    takesCommand,
    run: async (args, host) => {
      const own = takesCommand ? args.slice(0, ownLength(args, options)) : args;
      const isForPrograms = own.includes("--json");
      try {
        const parsed = parse(own, options);
        if (parsed.values["help"] === true) {
          host.stdout.write(helpText({ ...parts, options }));
          return 0;
        }
        const positionals = [...parsed.positionals, ...args.slice(own.length)];
        return await parts.run({ ...parsed, positionals } as Parsed<Own>, host);
      } catch (error) {
        // Loads the client library, which help and errors of the command line can do without.
        const { reportFailure } = await import("./failure.ts");
        return reportFailure(error, isForPrograms, host);
      }
    },
  };
}

/** How many arguments come before the first positional one, or up to and with `--`. */
function ownLength(args: readonly string[], options: Options): number {
  const { tokens } = parseArgs({ args: [...args], options, allowPositionals: true, strict: false, tokens: true });
  const end = tokens.find((token) => token.kind !== "option");
  if (end === undefined) return args.length;
  return end.kind === "option-terminator" ? end.index + 1 : end.index;
}

function parse(
  args: readonly string[],
  options: Options,
): { values: Readonly<Record<string, unknown>>; positionals: readonly string[] } {
  try {
    return parseArgs({ args: [...args], options, allowPositionals: true });
  } catch (error) {
    // parseArgs throws TypeErrors that say what is wrong with a command line, and then how to get round it.
    if (error instanceof TypeError) {
      const [problem = error.message] = error.message.split(/\. |\n/);
      throw new UsageError(`${problem}${suggestion(problem, options)}`);
    }
    throw error;
  }
}

/** The option that was probably meant, for a message about one that there is not. */
function suggestion(problem: string, options: Options): string {
  const [, name] = /^Unknown option '--([^']+)'/.exec(problem) ?? [];
  const meant = name === undefined ? undefined : nearest(name, Object.keys(options));
  return meant === undefined ? "" : `; did you mean --${meant}?`;
}

const COLUMN = 28;
const WIDTH = 120;

/** The text that `guestctl COMMAND --help` shows. */
function helpText({ usage, about, options, notes, statuses, examples }: Omit<CommandParts<Options>, "run">): string {
  const forms = usage.map((form, index) => `${index === 0 ? "Usage:" : "      "} guestctl ${form}`);
  const sections = [
    forms.join("\n"),
    about,
    Object.entries(options)
      .map(([name, option]) => optionLines(name, option))
      .join("\n"),
    ...(notes === undefined ? [] : [notes]),
    `Exit status: ${statuses}`,
    `Examples:\n${examples.map((example) => `  guestctl ${example}`).join("\n")}`,
  ];
  return `${sections.join("\n\n")}\n`;
}

/** `-s, --long ARGUMENT` and what it means, the text in a column of its own. */
function optionLines(name: string, { short, argument, help }: Option): string {
  const left = `  ${short === undefined ? "   " : `-${short},`} --${name}${argument === undefined ? "" : ` ${argument}`}`;
  const lines = wrap(help, WIDTH - COLUMN);
  const [first = "", ...rest] = left.length < COLUMN - 1 ? lines : ["", ...lines];
  return [left.padEnd(COLUMN) + first, ...rest.map((line) => " ".repeat(COLUMN) + line)]
    .map((line) => line.trimEnd())
    .join("\n");
}

/** A subcommand as the overview shows it. Its code is loaded when it is run: most of it is heavy and used by one alone. */
export interface CommandEntry {
  readonly summary: string;
  load(): Promise<Command>;
}

/** Slips of the finger, not other words. */
const DISTANCE_LIMIT = 2;

/** The known name that was probably meant; undefined where none is near. */
export function nearest(name: string, known: Iterable<string>): string | undefined {
  const near = Array.from(known, (each) => ({ each, distance: distance(name, each) }))
    .filter((candidate) => candidate.distance <= DISTANCE_LIMIT && candidate.distance < candidate.each.length)
    .toSorted((a, b) => a.distance - b.distance);
  return near[0]?.each;
}

/** How many letters have to be inserted, deleted or replaced (Levenshtein, 1966). */
function distance(from: string, to: string): number {
  let previous = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (let row = 0; row < from.length; row += 1) {
    const current = [row + 1];
    for (let column = 0; column < to.length; column += 1) {
      const replaced = (previous[column] ?? 0) + (from[row] === to[column] ? 0 : 1);
      current.push(Math.min(replaced, (previous[column + 1] ?? 0) + 1, (current[column] ?? 0) + 1));
    }
    previous = current;
  }
  return previous.at(-1) ?? 0;
}
