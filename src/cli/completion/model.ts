import type { CommandEntry, Completes, Option } from "../command-line.ts";

/** A command, as far as a shell needs it. */
export interface CompletedCommand {
  readonly name: string;
  readonly summary: string;
  readonly options: readonly CompletedOption[];
  /** Completions for each positional argument; the last is for all further ones. */
  readonly places: readonly Completes[];
  /** What follows the first positional argument is not guestctl's. */
  readonly takesCommand: boolean;
}

/** An option, as far as a shell needs it. */
export interface CompletedOption {
  readonly long: string;
  readonly short: string | undefined;
  readonly help: string;
  /** Name of its value; undefined: it has none. */
  readonly argument: string | undefined;
  readonly completes: Completes;
  readonly isRepeatable: boolean;
}

/** Loads all commands and their options. */
export async function completedCommands(table: ReadonlyMap<string, CommandEntry>): Promise<CompletedCommand[]> {
  return Promise.all(
    [...table].map(async ([name, entry]) => {
      const { options, completes, takesCommand } = await entry.load();
      const { summary } = entry;
      const completed = Object.entries(options).map(([long, option]) => completedOption(long, option));
      return { name, summary, options: completed, places: completes, takesCommand };
    }),
  );
}

function completedOption(long: string, { short, help, type, argument, completes, multiple }: Option): CompletedOption {
  return {
    long,
    short,
    help,
    argument: type === "boolean" ? undefined : (argument ?? "VALUE"),
    completes: completes ?? "nothing",
    isRepeatable: multiple === true,
  };
}

/** The spellings of an option: `--long`, and `-s` if it has one. */
export function spellings({ long, short }: CompletedOption): string[] {
  return [`--${long}`, ...(short === undefined ? [] : [`-${short}`])];
}
