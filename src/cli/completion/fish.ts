import type { Completes } from "../command-line.ts";
import type { CompletedCommand, CompletedOption } from "./model.ts";

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

function __guestctl_contexts
    set -l words (commandline -opc)
    $words[1] context list --names 2>/dev/null
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
  return [`complete -c guestctl -n '__guestctl_in ${command}${words}${after}'${offered(place)}`];
}

function offered(completes: Completes = "nothing"): string {
  if (typeof completes !== "string") return ` -f -a '${completes.join(" ")}'`;
  return {
    file: " -F",
    folder: " -f -a '(__fish_complete_directories)'",
    context: " -f -a '(__guestctl_contexts)'",
    nothing: " -f",
  }[completes];
}

function quoted(text: string): string {
  return `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
}
