import type { Command } from "./command.ts";

/** A subcommand as the overview shows it. Its code is loaded when it is run: most of it is heavy and used by one alone. */
export interface CommandEntry {
  readonly summary: string;
  load(): Promise<Command>;
}
