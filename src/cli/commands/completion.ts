import { type Command, type CommandEntry, defineCommand } from "../command-line.ts";
import { bashCompletion } from "../completion/bash.ts";
import { fishCompletion } from "../completion/fish.ts";
import { type CompletedCommand, completedCommands } from "../completion/model.ts";
import { zshCompletion } from "../completion/zsh.ts";
import { UsageError } from "../errors.ts";
import { jsonLine } from "../output.ts";

/** @param table all commands, this one included */
export function completion(table: ReadonlyMap<string, CommandEntry>): Command {
  return defineCommand({
    usage: [`completion ${SHELLS.join("|")}`],
    about: `Writes a script that completes command lines of guestctl in a shell: commands, options, files, and names of contexts.

  bash  in ~/.bashrc:                 source <(guestctl completion bash)
  zsh   in ~/.zshrc, after compinit:  source <(guestctl completion zsh)
  fish  once:                         guestctl completion fish > ~/.config/fish/completions/guestctl.fish`,
    options: {},
    notes: 'With --json, one object: "shell" and "script".',
    statuses: "0 written, 125 failed.",
    examples: ["completion bash > /etc/bash_completion.d/guestctl", "completion fish | source"],
    takes: "anything",
    completes: [SHELLS, "nothing"],
    async run({ values, positionals }, host) {
      const [name, ...more] = positionals;
      const shell = SHELLS.find((known) => known === name);
      if (shell === undefined || more.length > 0) throw new UsageError(`say which shell: ${SHELLS.join(", ")}`);
      const script = await completionScript(shell, table);
      host.stdout.write(values.json === true ? jsonLine({ shell, script }) : script);
      return 0;
    },
  });
}

/** A shell with a completion script. */
export type Shell = "bash" | "zsh" | "fish";

/** All of them. */
export const SHELLS: readonly Shell[] = ["bash", "zsh", "fish"];

const SCRIPTS: Readonly<Record<Shell, (commands: readonly CompletedCommand[]) => string>> = {
  bash: bashCompletion,
  zsh: zshCompletion,
  fish: fishCompletion,
};

/** The completion script for these commands, made from their definitions. */
async function completionScript(shell: Shell, table: ReadonlyMap<string, CommandEntry>): Promise<string> {
  return SCRIPTS[shell](await completedCommands(table));
}
