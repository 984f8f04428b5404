import type { GuestError } from "../../client/index.ts";
import { nearest } from "../../../shared/text.ts";
import { alteredArgument, restoredArguments } from "./argument-bytes.ts";
import { type Answers, answerTo, optionElsewhere } from "./elsewhere.ts";
import { UsageError } from "./errors.ts";
import { reportFailure } from "./failure.ts";
import { isRawName } from "./raw-names.ts";
import { type HelpParts, helpText } from "./help.ts";
import { jsonLine } from "./output.ts";
import { type Completes, type Options, parsed, type Values } from "./option.ts";

/** The process that guestctl runs as: arguments and environment come from it, output goes to it. */
export type Host = NodeJS.Process;

const COMMON_OPTIONS = {
  json: { help: "output for programs" },
  help: { short: "h", help: "this text" },
} as const;

/** A parsed command line. */
export interface Parsed<Own extends Options> {
  readonly values: Values<Own & typeof COMMON_OPTIONS>;
  readonly positionals: readonly string[];
}

/** Number of positional arguments, and what they are, for the error about another number: "write requires one path". */
export type Takes =
  | "nothing"
  | "anything"
  | { readonly one: string }
  | { readonly some: string }
  | { readonly exactly: number; readonly what: string };

/** A command's standard output, and its exit status. */
export interface Answer {
  readonly text: string;
  /** Printed instead with --json, in one line; a list as one line for each. */
  readonly json: object | readonly object[];
  /** Default: 0. */
  readonly status?: number;
}

interface CommandParts<Own extends Options> extends HelpParts {
  readonly options: Own;
  /** How many positional arguments there are. Default: "nothing". With "anything", `run` checks them itself. */
  readonly takes?: Takes;
  /** Positional arguments, and values of these options, may be names that are not UTF-8 (raw-names.ts). */
  readonly takesRawNames?: readonly string[];
  /** What a shell completes for each positional argument; the last is for all further ones. Default: nothing. */
  readonly completes?: readonly Completes[];
  /** Options end at the first positional argument: the rest belongs to the command that it names. */
  readonly takesCommand?: boolean;
  /** Equivalents of other tools' options: `--delete`, `-P`. Beside those of every command. */
  readonly elsewhere?: Answers;
  /** Writes arguments as this parser takes them: `-9` of kill(1). */
  rewrite?(args: readonly string[]): readonly string[];
  /** The exit status of any failure. Default: what the kind of failure has. */
  readonly statusOfFailure?: number;
  /** What to do about an agent's error, in this command's words; undefined: the general advice. */
  advice?(error: GuestError, positionals: readonly string[]): string | undefined;
  /** Resolves with what to print, or with the exit status if it has printed everything itself. */
  run(parsed: Parsed<Own>, host: Host): Promise<Answer | number>;
}

/** A subcommand. */
export interface Command {
  /** All of them, the common ones included. */
  readonly options: Options;
  readonly completes: readonly Completes[];
  readonly takesCommand: boolean;
  /** The commands of a group, by name. */
  readonly subcommands?: ReadonlyMap<string, Subcommand>;
  /** The text of --help. */
  help(): string;
  /** Runs with the arguments that follow the name. Resolves with the exit status and never rejects. */
  run(args: readonly string[], host: Host): Promise<number>;
}

/** A command of a group, with its line in the group's overview. */
export interface Subcommand {
  readonly summary: string;
  readonly command: Command;
}

/** Makes a subcommand: parses its command line, answers --help, and reports its failures. */
export function defineCommand<const Own extends Options>(parts: CommandParts<Own>): Command {
  const options: Options = { ...parts.options, ...COMMON_OPTIONS };
  const takesCommand = parts.takesCommand === true;
  return {
    options,
    completes: parts.completes ?? [],
    takesCommand,
    help: () => helpText({ ...parts, options }),
    run: async (given, host) => {
      const whole = parts.takesRawNames === undefined ? given : restoredArguments(given);
      const rewritten = parts.rewrite?.(whole) ?? whole;
      const args = takesCommand ? rewritten : withJsonOption(rewritten, options);
      const own = takesCommand ? args.slice(0, ownLength(args, options)) : args;
      const isForPrograms = own.includes("--json");
      let positionals: readonly string[] = [];
      try {
        const altered = alteredArgument(given);
        if (altered !== undefined && parts.takesRawNames === undefined) throw new UsageError(altered);
        const line = parse(own, options, parts.elsewhere);
        checkRawValues(line.values, parts.takesRawNames ?? []);
        if (line.values["help"] === true) {
          host.stdout.write(helpText({ ...parts, options }));
          return 0;
        }
        positionals = [...line.positionals, ...args.slice(own.length)];
        checkCount(parts, positionals);
        const answer = await parts.run({ ...line, positionals } as Parsed<Own>, host);
        if (typeof answer === "number") return answer;
        const { text, json, status = 0 } = answer;
        const lines = [json].flat().map(jsonLine);
        host.stdout.write(line.values["json"] === true ? lines.join("") : text);
        return status;
      } catch (error) {
        const status = reportFailure(error, isForPrograms, host, (failed) => parts.advice?.(failed, positionals));
        return parts.statusOfFailure ?? status;
      }
    },
  };
}

/** `-o json` of kubectl and docker's `--format json`, as --json; where a command has no such options of its own. */
function withJsonOption(args: readonly string[], options: Options): readonly string[] {
  const hasOwn = Object.entries(options).some(([name, { short }]) => short === "o" || name === "output");
  const end = args.indexOf("--");
  const at = args.findIndex(
    (argument, index) =>
      /^(?:-o|--output|--format)$/.test(argument) && args[index + 1] === "json" && (end < 0 || index < end),
  );
  if (!hasOwn && at >= 0) return [...args.slice(0, at), "--json", ...args.slice(at + 2)];
  const whole = args.findIndex(
    (argument, index) => /^(?:-o|--output=|--format=)json$/.test(argument) && (end < 0 || index < end),
  );
  return hasOwn || whole < 0 ? args : [...args.slice(0, whole), "--json", ...args.slice(whole + 1)];
}

/** Throws UsageError for a value that is not UTF-8, of an option that does not take one. */
function checkRawValues(values: Readonly<Record<string, unknown>>, allowed: readonly string[]): void {
  for (const [name, value] of Object.entries(values))
    if (!allowed.includes(name) && [value].flat().some((each) => typeof each === "string" && isRawName(each)))
      throw new UsageError(`the value of --${name} is not UTF-8`);
}

/** Throws UsageError for another number of positional arguments than the command takes. */
function checkCount({ usage, takes = "nothing" }: CommandParts<Options>, { length }: readonly string[]): void {
  const name = /^[a-z-]+(?: [a-z-]+(?= |$))*/.exec(usage[0] ?? "")?.[0] ?? "";
  if (takes === "nothing" && length > 0) throw new UsageError(`${name} takes no arguments`);
  if (typeof takes === "string") return;
  if ("exactly" in takes && length !== takes.exactly) throw new UsageError(`${name} requires ${takes.what}`);
  if ("some" in takes && length === 0) throw new UsageError(`${name} requires ${takes.some}`);
  if ("one" in takes && length !== 1) throw new UsageError(`${name} requires ${takes.one}`);
}

/** Number of arguments before the first positional one, or up to and including `--`. */
export function ownLength(args: readonly string[], options: Options): number {
  const { tokens } = parsed(args, options, false);
  const end = tokens.find((token) => token.kind !== "option");
  if (end === undefined) return args.length;
  return end.kind === "option-terminator" ? end.index + 1 : end.index;
}

function parse(
  args: readonly string[],
  options: Options,
  elsewhere: Answers = [],
): { values: Readonly<Record<string, unknown>>; positionals: readonly string[] } {
  try {
    return parsed(args, options, true);
  } catch (error) {
    // The messages of parseArgs name the problem, and then a way around it.
    if (error instanceof TypeError) {
      const [problem = error.message] = error.message.split(/\. |\n/);
      throw new UsageError(`${problem}${suggestion(problem, options, elsewhere)}`);
    }
    throw error;
  }
}

/** What was probably meant, for a message about an unknown option. */
function suggestion(problem: string, options: Options, elsewhere: Answers): string {
  const [, spelling = ""] = /^Unknown option '([^']+)'/.exec(problem) ?? [];
  const advice = answerTo(spelling, elsewhere) ?? optionElsewhere(spelling);
  if (advice !== undefined) return `; ${advice}`;
  const meant = spelling.startsWith("--") ? nearest(spelling.slice(2), Object.keys(options)) : undefined;
  return meant === undefined ? "" : `; did you mean --${meant}?`;
}

/** A subcommand as the overview shows it. Its code loads when it runs: most is large and used by one command alone. */
export interface CommandEntry {
  readonly summary: string;
  load(): Promise<Command>;
}
