import { basename } from "node:path";
import { type Command, type CommandEntry, defineCommand, parseWord, UsageError } from "../cli/index.ts";
import { SCRIPTS } from "./completion/scripts.ts";

export const SHELLS: readonly string[] = Object.keys(SCRIPTS);

/** @param table all commands of guestctl, including `completion` itself */
export function completion(table: ReadonlyMap<string, CommandEntry>): Command {
  return defineCommand({
    usage: [
      `completion [${SHELLS.join("|")}]`,
      "completion --of bash -- LINE PART",
      "completion --of zsh|fish -- WORD...",
    ],
    about: `Prints a script that completes command lines of guestctl in a shell: commands, options, local files, files in the
sandbox, names of kept commands and of this node's sandboxes. The default shell is that of $SHELL.

  bash  in ~/.bashrc:                 source <(guestctl completion bash)
  zsh   in ~/.zshrc, after compinit:  source <(guestctl completion zsh)
  fish  in ~/.config/fish/config.fish:  guestctl completion fish | source`,
    options: {
      of: {
        argument: "SHELL",
        help: "for the completion scripts: print the possible completions of the last word",
      },
    },
    notes: 'With --json, one object: "shell" and "script"; or "kind" and "offers".',
    statuses: "0 if the script was printed, 125 if guestctl failed.",
    examples: ["completion bash > /etc/bash_completion.d/guestctl", "completion zsh > ~/.zfunc/_guestctl"],
    takes: "anything",
    completes: [SHELLS, "nothing"],
    async run({ values, positionals: [first, ...more] }, host) {
      if (values.of === undefined) {
        if (more.length > 0) throw new UsageError("completion accepts the name of only one shell");
        const shell = first ?? basename(host.env["SHELL"] ?? "");
        const script = parseWord(shell, SCRIPTS, "the shell");
        return { text: script, json: { shell, script } };
      }
      // Load this module only for --of, because it loads the client library. Printing a script does not need that
      // library.
      const { offersFor } = await import("./completion/offers.ts");
      const words = values.of === "bash" ? wordsOf(first ?? "") : [first ?? "", ...more];
      // bash splits a word at each = and colon, and replaces only the last part. So cut the other parts off the offered
      // words.
      const cut = values.of === "bash" ? (words.at(-1) ?? "").length - unquoted(more[0] ?? "").length : 0;
      const { kind, offers } = await offersFor(table, words, host);
      const shown = offers.map(([word, about = ""]) => [word.slice(cut), about] as const);
      const lines = shown.map(([word, about]) => (about === "" ? `${word}\n` : `${word}\t${about}\n`));
      return { text: `${kind}\n${lines.join("")}`, json: { kind, offers: shown.map(([word]) => word) } };
    },
  });
}

/** Splits a line into words as a shell does, without quotes. The last word may be incomplete or empty. */
function wordsOf(line: string): readonly string[] {
  const words = line.match(/(?:\\.|"[^"]*"?|'[^']*'?|[^\s\\])+/g) ?? [];
  return [...words, ...(/(?<!\\)\s$/.test(line) ? [""] : [])].map(unquoted);
}

function unquoted(word: string): string {
  return word.replaceAll(/["'\\]/g, "");
}
