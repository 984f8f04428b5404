import type { Completes } from "../option.ts";
import { type CompletedCommand, type CompletedOption, CONNECTION_SPELLINGS } from "./model.ts";

/** Their long names. */
const LONG = CONNECTION_SPELLINGS.filter((spelling) => spelling.startsWith("--")).map((spelling) => spelling.slice(2));

/** Completion for fish, to be sourced. */
export function fishCompletion(commands: readonly CompletedCommand[]): string {
  return `# Completion of guestctl for fish: guestctl completion fish | source

function __guestctl_in
    set -l words (commandline -opc)
    test (count $words) -ge 2; and test $words[2] = $argv[1]
end

function __guestctl_first
    test (count (commandline -opc)) -eq 1
end

# Options that say where the agent is, as they stand on the line.
function __guestctl_connection
    set -l words (commandline -opc)
    for i in (seq (count $words))
        if contains -- $words[$i] ${CONNECTION_SPELLINGS.join(" ")}
            and set -q words[(math $i + 1)]
            printf '%s\\n' $words[$i] $words[(math $i + 1)]
        else if string match -qr -- '^--(?:${LONG.join("|")})=' $words[$i]
            printf '%s\\n' $words[$i]
        end
    end
end

function __guestctl_execs
    set -l words (commandline -opc)
    $words[1] execs --quiet (__guestctl_connection) 2>/dev/null
end

function __guestctl_sandboxes
    set -l words (commandline -opc)
    $words[1] completion --sandboxes (__guestctl_connection) 2>/dev/null
end

function __guestctl_remote
    string match -qr -- '^[a-z0-9-]*:' (commandline -ct)
end

function __guestctl_paths
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -l place ''
    __guestctl_remote; and set place (string match -r -- '^[a-z0-9-]*:' $word)
    set -l name (string replace ':' '' $place)
    set -l reach (__guestctl_connection)
    test -n "$name"; and set -a reach --sandbox $name
    for path in ($words[1] completion --paths (string replace -r -- '^[a-z0-9-]*:' '' $word) $reach 2>/dev/null)
        printf '%s\\n' $place$path
    end
end

complete -c guestctl -e
complete -c guestctl -f
complete -c guestctl -n __guestctl_first -l help -d 'overview of the commands'
complete -c guestctl -n __guestctl_first -l version -d 'version of guestctl'
${commands.flatMap(linesOf).join("\n")}
`;
}

function linesOf({ name, summary, options, completes }: CompletedCommand): string[] {
  return [
    `complete -c guestctl -n __guestctl_first -a ${name} -d ${quoted(summary)}`,
    ...options.map((option) => optionLine(name, option)),
    ...completes.flatMap((place, index) => placeLine(name, place, completes[index - 1])),
  ];
}

function optionLine(command: string, { long, short, help, type, completes }: CompletedOption): string {
  const names = short === undefined ? `-l ${long}` : `-s ${short} -l ${long}`;
  const value = type === "boolean" ? "" : ` -r${offered(completes)}`;
  return `complete -c guestctl -n '__guestctl_in ${command}' ${names}${value} -d ${quoted(help)}`;
}

/** Completions for an argument after its fixed word. */
function placeLine(command: string, place: Completes, before: Completes | undefined): string[] {
  if (place === "nothing") return [];
  const words = typeof place === "string" ? "" : `; and not __fish_seen_subcommand_from ${place.join(" ")}`;
  const after = Array.isArray(before) ? `; and __fish_seen_subcommand_from ${before.join(" ")}` : "";
  const line = (condition: string, kind: Completes): string =>
    `complete -c guestctl -n '__guestctl_in ${command}${words}${after}${condition}'${offered(kind)}`;
  return place === "either"
    ? [line("; and __guestctl_remote", "path"), line("; and not __guestctl_remote", "file")]
    : [line("", place)];
}

function offered(completes: Completes = "nothing"): string {
  if (typeof completes !== "string") return ` -f -a '${completes.join(" ")}'`;
  return {
    file: " -F",
    folder: " -f -a '(__fish_complete_directories)'",
    path: " -f -a '(__guestctl_paths)'",
    either: " -F",
    exec: " -f -a '(__guestctl_execs)'",
    sandbox: " -f -a '(__guestctl_sandboxes)'",
    nothing: " -f",
  }[completes];
}

function quoted(text: string): string {
  return `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
}
