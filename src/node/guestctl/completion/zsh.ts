import type { Completes } from "../option.ts";
import { quoted } from "../output.ts";
import { type CompletedCommand, type CompletedOption, CONNECTION_SPELLINGS, spellings } from "./model.ts";

/** Completion for zsh: sourced after compinit, or as the file _guestctl in a folder of $fpath. */
export function zshCompletion(commands: readonly CompletedCommand[]): string {
  return `#compdef guestctl
# Completion of guestctl for zsh: source <(guestctl completion zsh)

# Options that say where the agent is, as they stand on the line.
_guestctl_connection() {
  local option
  connection=()
  for option in ${CONNECTION_SPELLINGS.join(" ")}; do
    [[ -n $opt_args[$option] ]] && connection+=($option \${(Q)opt_args[$option]})
  done
}

_guestctl_sandboxes() {
  local -a connection names
  _guestctl_connection
  names=(\${(f)"$($guestctl completion --sandboxes $connection 2> /dev/null)"})
  compadd -a names
}

_guestctl_execs() {
  local -a connection names
  _guestctl_connection
  names=(\${(f)"$($guestctl execs --quiet $connection 2> /dev/null)"})
  compadd -a names
}

_guestctl_paths() {
  local -a connection paths
  _guestctl_connection
  if _guestctl_is_remote; then
    [[ $PREFIX == :* ]] || connection+=(--sandbox \${PREFIX%%:*})
    compset -P 1 '*:'
  fi
  paths=(\${(f)"$($guestctl completion --paths "\${(Q)PREFIX}" $connection 2> /dev/null)"})
  compadd -S '' -a paths
}

_guestctl_either() {
  if _guestctl_is_remote; then _guestctl_paths; else _files; fi
}

# Whether the word is :PATH or NAME:PATH.
_guestctl_is_remote() {
  [[ $PREFIX == *:* && \${PREFIX%%:*} != *[^a-z0-9-]* ]]
}

_guestctl() {
  local guestctl=$words[1]
  local -a commands
  commands=(
${commands.map(({ name, summary }) => `    ${quoted(`${name}:${summary}`)}`).join("\n")}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    compadd -- --help --version
    return
  fi
  shift words
  (( CURRENT-- ))
  case $words[1] in
${commands.map((command) => `    ${command.name})\n      _arguments -s -S ${argumentsOf(command).join(" \\\n        ")} ;;`).join("\n")}
  esac
}

if [[ $funcstack[1] == _guestctl ]]; then
  _guestctl "$@"
else
  compdef _guestctl guestctl
fi
`;
}

/** Arguments of _arguments, without those that have no completions: zsh would show an empty message for them. */
function argumentsOf({ options, completes, takesCommand }: CompletedCommand): string[] {
  const positionals = completes.flatMap((place, index) => {
    const isLast = index === completes.length - 1;
    return place === "nothing" ? [] : [quoted(`${isLast ? "*" : index + 1}: :${action(place)}`)];
  });
  return [...(takesCommand ? ["-A", quoted("-*")] : []), ...options.map(optionSpec), ...positionals];
}

function optionSpec(option: CompletedOption): string {
  const { argument = "", multiple, help, completes } = option;
  const takesValue = option.type === "string";
  const value = takesValue ? `:${escaped(argument)}:${action(completes)}` : "";
  const prefix = multiple === true ? quoted("*") : quoted(`(${spellings(option).join(" ")})`);
  const names = spellings(option).map((name) => (takesValue ? `${name}${name.startsWith("--") ? "=" : "+"}` : name));
  const each = names.length === 1 ? (names[0] ?? "") : `{${names.join(",")}}`;
  return `${prefix}${each}${quoted(`[${escaped(help)}]${value}`)}`;
}

function action(completes: Completes = "nothing"): string {
  if (typeof completes !== "string") return `(${completes.join(" ")})`;
  return {
    file: "_files",
    folder: "_files -/",
    path: "_guestctl_paths",
    either: "_guestctl_either",
    exec: "_guestctl_execs",
    sandbox: "_guestctl_sandboxes",
    nothing: " ",
  }[completes];
}

/** Quotes text for _arguments. */
function escaped(text: string): string {
  return text.replace(/[\\[\]:]/g, String.raw`\$&`);
}
