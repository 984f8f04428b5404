import type { Command, CommandEntry, Option } from "../command-line.ts";

/** A command, as far as a shell needs it. */
export interface CompletedCommand extends Pick<Command, "completes" | "takesCommand"> {
  readonly name: string;
  readonly summary: string;
  readonly options: readonly CompletedOption[];
}

/** An option, and its long name. */
export interface CompletedOption extends Option {
  readonly long: string;
}

/** Loads all commands and their options. */
export async function completedCommands(table: ReadonlyMap<string, CommandEntry>): Promise<CompletedCommand[]> {
  return Promise.all(
    [...table].map(async ([name, entry]) => {
      const { options, completes, takesCommand } = await entry.load();
      const named = Object.entries(options).map(([long, option]) => ({ long, ...option }));
      return { name, summary: entry.summary, options: named, completes, takesCommand };
    }),
  );
}

/** The spellings of an option: `--long`, and `-s` if it has one. */
export function spellings({ long, short }: CompletedOption): string[] {
  return [`--${long}`, ...(short === undefined ? [] : [`-${short}`])];
}
