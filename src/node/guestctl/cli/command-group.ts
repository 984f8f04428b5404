import { nearest } from "../../../shared/text.ts";
import { type Command, ownLength, type Subcommand } from "./command-line.ts";
import { type Hints, findHint } from "./hints.ts";
import { UsageError } from "./errors.ts";
import { reportFailure } from "./failure.ts";
import { examplesText } from "./help.ts";
import { type Options, parsed } from "./option.ts";

interface GroupParts {
  readonly name: string;
  /** Description in the group's help text, already divided into lines. */
  readonly about: string;
  readonly commands: ReadonlyMap<string, Subcommand>;
  /** Further notes of the help. Their lines are printed unchanged. */
  readonly notes: string;
  /** Exit statuses of all subcommands, already divided into lines. */
  readonly statuses: string;
  /** Example command lines, without "guestctl". */
  readonly examples: readonly string[];
  /** Subcommands of other tools, such as `delete` of kubectl, and their equivalents in guestctl. */
  readonly hints: Hints;
}

/** Defines a command that has subcommands, such as `sandbox`. Each subcommand has its own options, help and examples. */
export function defineGroup(parts: GroupParts): Command {
  const { name, commands } = parts;
  const all: Options = Object.fromEntries(
    [...commands.values()].flatMap(({ command }) => Object.entries(command.options)),
  );
  return {
    options: all,
    completes: [[...commands.keys()]],
    takesCommand: false,
    hints: [],
    subcommands: commands,
    help: () => overview(parts),
    run: async (args, host) => {
      try {
        const at = verbIndex(args, all);
        const verb = at === undefined ? undefined : args[at];
        if (at === undefined || verb === undefined) {
          if (args.length > 0 && !args.includes("--help") && !args.includes("-h"))
            throw new UsageError(`no ${name} command given; available: ${[...commands.keys()].join(", ")}`);
          host.stdout.write(overview(parts));
          return 0;
        }
        const command = commands.get(verb)?.command;
        if (command === undefined) throw new UsageError(unknown(parts, verb));
        const rest = [...args.slice(0, at), ...args.slice(at + 1)];
        refuseOthersOptions(parts, verb, command, rest);
        return await command.run(rest, host);
      } catch (error) {
        return reportFailure(error, args.includes("--json"), host);
      }
    },
  };
}

/** Index of the subcommand's name among the arguments. Options may precede it. */
function verbIndex(args: readonly string[], options: Options): number | undefined {
  const { tokens } = parsed(args, options, false);
  const first = tokens.find(({ kind }) => kind !== "option");
  return first?.kind === "positional" ? first.index : undefined;
}

/** Throws UsageError for an option that only other subcommands have; the error names them. */
function refuseOthersOptions(
  { name, commands }: GroupParts,
  verb: string,
  command: Command,
  args: readonly string[],
): void {
  const own = command.takesCommand ? args.slice(0, ownLength(args, command.options)) : args;
  for (const token of parsed(own, command.options, false).tokens) {
    if (token.kind !== "option" || has(command.options, token.name)) continue;
    if (findHint(token.rawName, command.hints) !== undefined) continue;
    const others = [...commands].flatMap(([other, each]) => (has(each.command.options, token.name) ? [other] : []));
    if (others.length === 0) continue;
    throw new UsageError(
      `${name} ${verb} does not take ${token.rawName}; it is an option of ${name} ${others.join(", ")}`,
    );
  }
}

function has(options: Options, name: string): boolean {
  return Object.entries(options).some(
    ([long, { short, also = [] }]) => long === name || short === name || also.includes(name),
  );
}

function unknown({ name, commands, hints }: GroupParts, verb: string): string {
  const meant = nearest(verb, commands.keys());
  const likely = meant === undefined ? `available: ${[...commands.keys()].join(", ")}` : `did you mean ${meant}?`;
  return `unknown ${name} command ${JSON.stringify(verb)}; ${findHint(verb, hints) ?? likely}`;
}

function overview({ name, about, commands, notes, statuses, examples }: GroupParts): string {
  const width = Math.max(...[...commands.keys()].map(({ length }) => length)) + 3;
  const sections = [
    `Usage: guestctl ${name} COMMAND [options]`,
    about,
    [...commands].map(([verb, { summary }]) => `  ${verb.padEnd(width)}${summary}`).join("\n"),
    `"guestctl ${name} COMMAND --help" shows the options and examples of a command.`,
    notes,
    `Exit status: ${statuses}`,
    examplesText(examples),
  ];
  return `${sections.join("\n\n")}\n`;
}
