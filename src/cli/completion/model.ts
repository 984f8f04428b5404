import type { CommandEntry, Completes, Option } from "../command-line.ts";

/** A command as a shell has to know it. */
export interface CompletedCommand {
  readonly name: string;
  readonly summary: string;
  readonly options: readonly CompletedOption[];
  /** What is offered for the positional arguments, by their place; the last is for all that follow. */
  readonly places: readonly Completes[];
  /** What follows the first positional argument is not guestctl's. */
  readonly takesCommand: boolean;
}

/** An option as a shell has to know it. */
export interface CompletedOption {
  readonly long: string;
  readonly short: string | undefined;
  readonly help: string;
  /** What its value is called; undefined: it has none. */
  readonly argument: string | undefined;
  readonly completes: Completes;
  readonly isRepeatable: boolean;
}

/** Loads all commands to see what they take. */
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

/** An option as it is written: `--long`, and `-s` where there is one. */
export function spellings({ long, short }: CompletedOption): string[] {
  return [`--${long}`, ...(short === undefined ? [] : [`-${short}`])];
}
