import type { CommandEntry } from "../command-line/index.ts";
import { bashCompletion } from "./bash.ts";
import { fishCompletion } from "./fish.ts";
import { type CompletedCommand, completedCommands } from "./model.ts";
import { zshCompletion } from "./zsh.ts";

/** A shell that guestctl's command line can be completed in. */
export type Shell = "bash" | "zsh" | "fish";

/** All of them. */
export const SHELLS: readonly Shell[] = ["bash", "zsh", "fish"];

const SCRIPTS: Readonly<Record<Shell, (commands: readonly CompletedCommand[]) => string>> = {
  bash: bashCompletion,
  zsh: zshCompletion,
  fish: fishCompletion,
};

/** The script that completes a command line of these commands, written from what the commands themselves take. */
export async function completionScript(shell: Shell, table: ReadonlyMap<string, CommandEntry>): Promise<string> {
  return SCRIPTS[shell](await completedCommands(table));
}
