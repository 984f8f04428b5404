import { parseArgs } from "node:util";
import { UsageError } from "../errors.ts";
import { nearest } from "../nearest.ts";
import { helpText } from "./help.ts";
import type { Completes, Options } from "./option.ts";

/** The process that guestctl runs as: arguments and environment come from it, output goes to it. */
export type Host = NodeJS.Process;

/** Options of every command. */
export const COMMON_OPTIONS = {
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
        const { reportFailure } = await import("../failure.ts");
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
