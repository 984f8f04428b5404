import { type Command, type CommandEntry, defineCommand } from "../command-line.ts";
import { bashCompletion } from "../completion/bash.ts";
import { fishCompletion } from "../completion/fish.ts";
import { completedCommands } from "../completion/model.ts";
import { zshCompletion } from "../completion/zsh.ts";
import { parseWord } from "../values.ts";

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
    takes: { one: "bash, zsh or fish" },
    completes: [SHELLS, "nothing"],
    async run({ positionals: [shell] }) {
      const script = parseWord(shell, SCRIPTS, "which shell")(await completedCommands(table));
      return { text: script, json: { shell, script } };
    },
  });
}

const SCRIPTS = { bash: bashCompletion, zsh: zshCompletion, fish: fishCompletion } as const;

/** The shells that have a completion script. */
export const SHELLS: readonly string[] = Object.keys(SCRIPTS);
