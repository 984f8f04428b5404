import { type Command, type CommandEntry, defineCommand } from "../command-line.ts";
import { SCRIPTS } from "../completion/scripts.ts";
import { UsageError } from "../errors.ts";
import { parseWord } from "../values.ts";

/** The shells that have a completion script. */
export const SHELLS: readonly string[] = Object.keys(SCRIPTS);

/** @param table all commands, this one included */
export function completion(table: ReadonlyMap<string, CommandEntry>): Command {
  return defineCommand({
    usage: [`completion ${SHELLS.join("|")}`, "completion --of SHELL -- LINE WORD..."],
    about: `Writes a script that completes command lines of guestctl in a shell: commands, options, files here and in the sandbox,
names of kept commands and of this node's sandboxes.

  bash  in ~/.bashrc:                 source <(guestctl completion bash)
  zsh   in ~/.zshrc, after compinit:  source <(guestctl completion zsh)
  fish  once:                         guestctl completion fish > ~/.config/fish/completions/guestctl.fish`,
    options: {
      of: {
        type: "string",
        argument: "SHELL",
        help: "for the scripts: what may complete the last WORD; LINE is the typed line, for bash",
      },
    },
    notes: 'With --json, one object: "shell" and "script"; or "kind" and "offers".',
    statuses: "0 written, 125 failed.",
    examples: ["completion bash > /etc/bash_completion.d/guestctl", "completion fish | source"],
    takes: "anything",
    completes: [SHELLS, "nothing"],
    async run({ values, positionals: [first, ...more] }, host) {
      if (values.of === undefined) {
        if (more.length > 0) throw new UsageError("completion wants one shell");
        const script = parseWord(first, SCRIPTS, "which shell");
        return { text: script, json: { shell: first, script } };
      }
      // Loads the client library, which the scripts do not need.
      const { offersFor } = await import("../completion/offers.ts");
      const { words, cut } = values.of === "bash" ? wholeWords(first ?? "", more) : { words: more, cut: 0 };
      const { kind, offers } = await offersFor(table, words, host);
      const told = offers.map(([word, about = ""]) => [word.slice(cut), about] as const);
      const lines = told.map(([word, about]) => (about === "" ? `${word}\n` : `${word}\t${about}\n`));
      return { text: `${kind}\n${lines.join("")}`, json: { kind, offers: told.map(([word]) => word) } };
    },
  });
}

/**
 * The words as they were typed: bash takes them apart at each = and colon, and keeps their quotes. `cut` is the
 * beginning of the last word, up to the part that bash completes.
 */
function wholeWords(line: string, parts: readonly string[]): { words: readonly string[]; cut: number } {
  const words: string[] = [];
  let at = 0;
  for (const part of parts) {
    const isGlued = words.length > 0 && (part === "" ? at === line.length : line.startsWith(part, at));
    at = line.indexOf(part, at) + part.length;
    words.push((isGlued ? (words.pop() ?? "") : "") + part.replaceAll(/["'\\]/g, ""));
  }
  const last = /^[:=]$/.test(parts.at(-1) ?? "") ? "" : (parts.at(-1) ?? "");
  return { words, cut: (words.at(-1) ?? "").length - last.replaceAll(/["'\\]/g, "").length };
}
