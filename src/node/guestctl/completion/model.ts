import { CONNECTION_OPTIONS } from "../connection.ts";
import type { Command, CommandEntry } from "../command-line.ts";
import type { Option } from "../option.ts";

/** The options that say where the agent is: what a shell passes on when it asks guestctl for names and paths. */
export const CONNECTION_SPELLINGS: readonly string[] = Object.entries(CONNECTION_OPTIONS).flatMap(([long, option]) =>
  spellings({ long, ...option }),
);

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
