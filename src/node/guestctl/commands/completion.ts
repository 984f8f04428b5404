import { type Command, type CommandEntry, defineCommand } from "../command-line.ts";
import { bashCompletion } from "../completion/bash.ts";
import { fishCompletion } from "../completion/fish.ts";
import { completedCommands } from "../completion/model.ts";
import { zshCompletion } from "../completion/zsh.ts";
import { guestPaths } from "../completion/paths.ts";
import { CONNECTION_OPTIONS, openClient } from "../connection.ts";
import { UsageError } from "../errors.ts";
import { parseWord } from "../values.ts";

/** @param table all commands, this one included */
export function completion(table: ReadonlyMap<string, CommandEntry>): Command {
  return defineCommand({
    usage: [
      `completion ${SHELLS.join("|")}`,
      "completion --paths PREFIX [options]",
      "completion --sandboxes [options]",
    ],
    about: `Writes a script that completes command lines of guestctl in a shell: commands, options, files here and in the sandbox,
names of kept commands and of this node's sandboxes.

  bash  in ~/.bashrc:                 source <(guestctl completion bash)
  zsh   in ~/.zshrc, after compinit:  source <(guestctl completion zsh)
  fish  once:                         guestctl completion fish > ~/.config/fish/completions/guestctl.fish`,
    options: {
      paths: {
        type: "string",
        argument: "PREFIX",
        help: "what the scripts ask: the paths of the sandbox that begin so, by the image's ls",
      },
      sandboxes: { type: "boolean", help: "what the scripts ask: names of this node's sandboxes, from its journal" },
      ...CONNECTION_OPTIONS,
    },
    notes: 'With --json, one object: "shell" and "script"; or "paths"; or "sandboxes".',
    statuses: "0 written, 125 failed.",
    examples: ["completion bash > /etc/bash_completion.d/guestctl", "completion fish | source"],
    takes: "anything",
    completes: [SHELLS, "nothing"],
    async run({ values, positionals: [shell, ...more] }, host) {
      if (values.paths !== undefined) {
        using client = await openClient(values, host);
        const paths = await guestPaths(client, values.paths);
        return { text: paths.map((path) => `${path}\n`).join(""), json: { paths } };
      }
      if (values.sandboxes === true) {
        const { sandboxNames } = await import("../sandbox/reach.ts");
        const sandboxes = await sandboxNames(values.state, host);
        return { text: sandboxes.map((name) => `${name}\n`).join(""), json: { sandboxes } };
      }
      if (more.length > 0) throw new UsageError("completion wants one shell");
      const script = parseWord(shell, SCRIPTS, "which shell")(await completedCommands(table));
      return { text: script, json: { shell, script } };
    },
  });
}

const SCRIPTS = { bash: bashCompletion, zsh: zshCompletion, fish: fishCompletion } as const;

/** The shells that have a completion script. */
export const SHELLS: readonly string[] = Object.keys(SCRIPTS);
