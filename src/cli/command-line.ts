import { parseArgs, type ParseArgsOptionDescriptor } from "node:util";
import { wrap } from "../domain/index.ts";
import { UsageError } from "./errors.ts";

/** What a shell offers for a word: names of local files or folders, of contexts, fixed words, or nothing. */
export type Completes = "file" | "folder" | "context" | "nothing" | readonly string[];

/** An option of a command, for the parser, for its help text and for the shells' completion. */
export interface Option extends ParseArgsOptionDescriptor {
  /** Name of its value in the help; only with type string. */
  readonly argument?: string;
  readonly help: string;
  /** What a shell completes for its value. Default: nothing. */
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

/** A parsed command line. */
export type Parsed<Own extends Options> = ReturnType<
  typeof parseArgs<{ options: Own & typeof COMMON_OPTIONS; allowPositionals: true }>
>;

/** Number of positional arguments, and what they are, for the error about another number: "write wants one path". */
type Takes = "nothing" | "anything" | { readonly one: string } | { readonly some: string };

/** What a command says on standard output, and its exit status. */
export interface Answer {
  readonly text: string;
  /** Said instead with --json, in a line; a list in a line for each. */
  readonly json: object | readonly object[];
  /** Default: 0. */
  readonly status?: number;
}

/** Definition of a subcommand. */
interface CommandParts<Own extends Options> {
  /** Its forms without "guestctl", one per line. */
  readonly usage: readonly string[];
  /** Description, in full lines. */
  readonly about: string;
  readonly options: Own;
  /** Further notes, in full lines. */
  readonly notes?: string;
  /** Exit statuses, in full lines. */
  readonly statuses: string;
  /** Arguments, from "guestctl" on. */
  readonly examples: readonly string[];
  /** How many positional arguments there are. Default: "nothing". With "anything", `run` checks them itself. */
  readonly takes?: Takes;
  /** What a shell completes for each positional argument; the last is for all further ones. Default: nothing. */
  readonly completes?: readonly Completes[];
  /** Options end at the first positional argument: the rest belongs to the command that it names. */
  readonly takesCommand?: boolean;
  /** Resolves with the exit status, where it has written all there is to say itself. */
  run(parsed: Parsed<Own>, host: Host): Promise<Answer | number>;
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

/** Makes a subcommand: parses its command line, answers --help, and reports its failures. */
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
        checkCount(parts, positionals);
        const answer = await parts.run({ ...parsed, positionals } as Parsed<Own>, host);
        if (typeof answer === "number") return answer;
        const { text, json, status = 0 } = answer;
        const lines = [json].flat().map((object) => `${JSON.stringify(object)}\n`);
        host.stdout.write(parsed.values["json"] === true ? lines.join("") : text);
        return status;
      } catch (error) {
        // Loads the client library, which help and usage errors do not need.
        const { reportFailure } = await import("./failure.ts");
        return reportFailure(error, isForPrograms, host);
      }
    },
  };
}

/** Throws UsageError for another number of positional arguments than the command takes. */
function checkCount({ usage, takes = "nothing" }: CommandParts<Options>, { length }: readonly string[]): void {
  const [name] = usage[0]?.split(" ") ?? [];
  if (takes === "nothing" && length > 0) throw new UsageError(`${name} takes no arguments`);
  if (typeof takes === "string") return;
  if ("some" in takes && length === 0) throw new UsageError(`${name} wants ${takes.some}`);
  if ("one" in takes && length !== 1) throw new UsageError(`${name} wants ${takes.one}`);
}

/** Number of arguments before the first positional one, or up to and including `--`. */
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
    // The messages of parseArgs name the problem, and then a way around it.
    if (error instanceof TypeError) {
      const [problem = error.message] = error.message.split(/\. |\n/);
      throw new UsageError(`${problem}${suggestion(problem, options)}`);
    }
    throw error;
  }
}

/** The option that was probably meant, for a message about an unknown one. */
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

/** A subcommand as the overview shows it. Its code loads when it runs: most is large and used by one command alone. */
export interface CommandEntry {
  readonly summary: string;
  load(): Promise<Command>;
}

/** Allows typing errors, but not other words. */
const DISTANCE_LIMIT = 2;

/** The most similar known name; undefined if none is similar. */
export function nearest(name: string, known: Iterable<string>): string | undefined {
  const near = Array.from(known, (each) => ({ each, distance: distance(name, each) }))
    .filter((candidate) => candidate.distance <= DISTANCE_LIMIT && candidate.distance < candidate.each.length)
    .toSorted((a, b) => a.distance - b.distance);
  return near[0]?.each;
}

/** Number of letters to insert, delete or replace (Levenshtein, 1966). */
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
