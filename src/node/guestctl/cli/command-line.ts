import type { GuestError } from "../../client/index.ts";
import { nearest } from "../../../shared/text.ts";
import { alteredArgument, restoredArguments } from "./argument-bytes.ts";
import { type Hints, findHint, hintForOption } from "./hints.ts";
import { UsageError } from "./errors.ts";
import { reportFailure } from "./failure.ts";
import { isRawName } from "./raw-names.ts";
import { type HelpParts, helpText } from "./help.ts";
import { jsonLine } from "./output.ts";
import { type Completes, ignored, type Options, parsed, shown, type Values } from "./option.ts";

/** The process that guestctl runs in. Arguments and environment come from it, and output goes to it. */
export type Host = NodeJS.Process;

const COMMON_OPTIONS = {
  json: { help: "output for programs" },
  help: { short: "h", help: "this text" },
} as const;

/** The options and the positional arguments of a command line. */
export interface Parsed<Own extends Options> {
  readonly values: Values<Own & typeof COMMON_OPTIONS>;
  readonly positionals: readonly string[];
}

/** The number of positional arguments, and what they are called in an error, such as "write requires one path". */
export type Takes =
  | "nothing"
  | "anything"
  | { readonly one: string }
  | { readonly some: string }
  | { readonly exactly: number; readonly what: string };

/** What a command prints to standard output, and its exit status. */
export interface Answer {
  readonly text: string;
  /**
   * What is printed with --json instead of `text`. An object is printed as one line, and a list as one line for each
   * element.
   */
  readonly json: object | readonly object[];
  /** Exit status. Default: 0. */
  readonly status?: number;
}

interface CommandParts<Own extends Options> extends HelpParts {
  readonly options: Own;
  /**
   * The allowed number of positional arguments. Default: "nothing", which allows none. "anything" allows any number,
   * and `run` must check it.
   */
  readonly takes?: Takes;
  /**
   * Permits file names that are not valid UTF-8 (raw-names.ts) as positional arguments, and as values of the options in
   * this list. An empty list permits them only as positional arguments. Default: the command rejects such names.
   */
  readonly takesRawNames?: readonly string[];
  /**
   * What a shell completes for each positional argument. The last item also applies to all further arguments. Default:
   * nothing.
   */
  readonly completes?: readonly Completes[];
  /** Options end at the first positional argument; the arguments after it belong to the guest's command. */
  readonly takesCommand?: boolean;
  /**
   * Options of other tools, such as `--delete`, and their equivalents in guestctl. They take precedence over the
   * general table of such options.
   */
  readonly hints?: Hints;
  /**
   * Options of other tools that guestctl accepts and ignores. They have no value. An item has all spellings of one
   * option, such as "-d --detach".
   */
  readonly ignored?: readonly string[];
  /** Rewrites arguments that this parser does not accept, such as `-9` of kill(1). */
  rewrite?(args: readonly string[]): readonly string[];
  /** The exit status for every failure of this command. Default: the status depends on the kind of failure. */
  readonly statusOfFailure?: number;
  /** The command's advice about an agent's error; undefined if the general advice applies. */
  advice?(error: GuestError, positionals: readonly string[]): string | undefined;
  /** Resolves with what to print, or with the exit status if the command has printed everything itself. */
  run(parsed: Parsed<Own>, host: Host): Promise<Answer | number>;
}

export interface Command {
  /** All options, including the common ones. */
  readonly options: Options;
  readonly completes: readonly Completes[];
  readonly takesCommand: boolean;
  /** Options of other tools and their equivalents in guestctl. */
  readonly hints: Hints;
  /** The subcommands of a command group, by name. */
  readonly subcommands?: ReadonlyMap<string, Subcommand>;
  /** The text of --help. */
  help(): string;
  /** Runs the command with the arguments after its name. Resolves with the exit status and never rejects. */
  run(args: readonly string[], host: Host): Promise<number>;
}

/** A subcommand, and the line about it in the help of its command group. */
export interface Subcommand {
  readonly summary: string;
  readonly command: Command;
}

/** Defines a command: parses its command line, handles --help, and reports its failures. */
export function defineCommand<const Own extends Options>(parts: CommandParts<Own>): Command {
  const options: Options = Object.assign(
    { ...parts.options, ...COMMON_OPTIONS },
    ...(parts.ignored ?? []).map(ignored),
  ) as Options;
  const takesCommand = parts.takesCommand === true;
  return {
    options,
    completes: parts.completes ?? [],
    takesCommand,
    hints: parts.hints ?? [],
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
        const line = parse(own, options, parts.hints);
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

/** Rewrites `-o json` (kubectl) and `--format json` (docker) to --json, unless the command has such an option itself. */
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

/** Throws UsageError if an option's value is not valid UTF-8, unless the option accepts arbitrary bytes. */
function checkRawValues(values: Readonly<Record<string, unknown>>, allowed: readonly string[]): void {
  for (const [name, value] of Object.entries(values))
    if (!allowed.includes(name) && [value].flat().some((each) => typeof each === "string" && isRawName(each)))
      throw new UsageError(`the value of --${name} is not UTF-8`);
}

/** Throws UsageError if the number of positional arguments is wrong. */
function checkCount({ usage, takes = "nothing" }: CommandParts<Options>, { length }: readonly string[]): void {
  const name = /^[a-z-]+(?: [a-z-]+(?= |$))*/.exec(usage[0] ?? "")?.[0] ?? "";
  if (takes === "nothing" && length > 0) throw new UsageError(`${name} takes no arguments`);
  if (typeof takes === "string") return;
  if ("exactly" in takes && length !== takes.exactly) throw new UsageError(`${name} requires ${takes.what}`);
  if ("some" in takes && length === 0) throw new UsageError(`${name} requires ${takes.some}`);
  if ("one" in takes && length !== 1) throw new UsageError(`${name} requires ${takes.one}`);
}

/** Number of arguments that come before the first positional argument, or up to and including `--` if there is one. */
export function ownLength(args: readonly string[], options: Options): number {
  const { tokens } = parsed(args, options, false);
  const end = tokens.find((token) => token.kind !== "option");
  if (end === undefined) return args.length;
  return end.kind === "option-terminator" ? end.index + 1 : end.index;
}

function parse(
  args: readonly string[],
  options: Options,
  hints: Hints = [],
): { values: Readonly<Record<string, unknown>>; positionals: readonly string[] } {
  try {
    return parsed(args, options, true);
  } catch (error) {
    // A message of parseArgs begins with the problem. The advice after it does not apply to guestctl, so it is cut off.
    if (error instanceof TypeError) {
      throw new UsageError(problemOf(error.message, options, hints));
    }
    throw error;
  }
}

/** Expresses a message of parseArgs in guestctl's terms. */
function problemOf(message: string, options: Options, hints: Hints): string {
  const [, spelling] = /^Unknown option '([^']+)'/.exec(message) ?? [];
  if (spelling !== undefined) return `unknown option ${spelling}${suggestion(spelling, options, hints)}`;
  const [, names = "", problem = ""] =
    /^Option '(.+?)' (argument missing|does not take|argument is ambiguous)/.exec(message) ?? [];
  const option =
    names
      .replace(/ <value>$/, "")
      .split(", ")
      .at(-1) ?? "";
  if (problem === "argument missing") return `${option} requires a value`;
  if (problem === "does not take") return `${option} takes no value`;
  if (problem !== "") return `the value of ${option} begins with a dash; if that is meant, write ${option}=VALUE`;
  return message.split(/\. |\n/)[0] ?? message;
}

/** Advice to append to a message about an unknown option. */
function suggestion(spelling: string, options: Options, hints: Hints): string {
  const advice = findHint(spelling, hints) ?? hintForOption(spelling);
  if (advice !== undefined) return `; ${advice}`;
  const meant = spelling.startsWith("--") ? nearest(spelling.slice(2), Object.keys(shown(options))) : undefined;
  return meant === undefined ? "" : `; did you mean --${meant}?`;
}

/**
 * The line about a command in guestctl's help, and how to load the command. The command's code is large, so it is
 * loaded only when the command is used.
 */
export interface CommandEntry {
  readonly summary: string;
  load(): Promise<Command>;
}
