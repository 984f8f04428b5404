import type { Completes } from "../option.ts";
import { type CompletedCommand, CONNECTION_SPELLINGS, spellings } from "./model.ts";

/** Completion for bash 3.2 or later, to be sourced. */
export function bashCompletion(commands: readonly CompletedCommand[]): string {
  return `# Completion of guestctl for bash: source <(guestctl completion bash)

# The options of a command.
_guestctl_options() {
  case "$1" in
${commands.map(({ name, options }) => `    ${name}) echo '${options.flatMap(spellings).join(" ")}' ;;`).join("\n")}
  esac
}

# What the value of a command's option may be; fails where it has none.
_guestctl_value() {
  case "$1 $2" in
${lines(grouped(commands.flatMap(valueCases)))}
    *) return 1 ;;
  esac
}

# What a command's positional argument may be, by its place.
_guestctl_place() {
  case "$1 $2" in
${lines(commands.flatMap(placeCases))}
    *) echo nothing ;;
  esac
}

# Offers the words on standard input that begin with the current one.
_guestctl_reply() {
  local word
  while IFS= read -r word; do COMPREPLY+=("$word"); done
}

_guestctl_offer() {
  local kind="$1"
  shift
  case "$kind" in
    file) compopt -o filenames 2> /dev/null; _guestctl_reply < <(compgen -f -- "$cur") ;;
    folder) compopt -o filenames 2> /dev/null; _guestctl_reply < <(compgen -d -- "$cur") ;;
    path) _guestctl_paths ;;
    either) _guestctl_named; if [[ -n "$remote" ]]; then _guestctl_paths; else _guestctl_offer file; fi ;;
    exec) _guestctl_reply < <(compgen -W "$("\${COMP_WORDS[0]}" execs --quiet "\${connection[@]}" 2> /dev/null)" -- "$cur") ;;
    sandbox) _guestctl_reply < <(compgen -W "$("\${COMP_WORDS[0]}" completion --sandboxes "\${connection[@]}" 2> /dev/null)" -- "$cur") ;;
    words) _guestctl_reply < <(compgen -W "$*" -- "$cur") ;;
  esac
}

# The sandbox of NAME:PATH, which bash has taken apart.
_guestctl_named() {
  local line="\${COMP_LINE:0:\${COMP_POINT:-0}}"
  if [[ "\${line##* }" =~ ^([a-z0-9-]+): ]]; then connection+=(--sandbox "\${BASH_REMATCH[1]}"); fi
}

# Paths of the sandbox: bash has taken the colon off.
_guestctl_paths() {
  local path
  compopt -o nospace 2> /dev/null
  while IFS= read -r path; do COMPREPLY+=("$(printf '%q' "$path")"); done < <(
    "\${COMP_WORDS[0]}" completion --paths "$cur" "\${connection[@]}" 2> /dev/null
  )
}

_guestctl() {
  local cur="\${COMP_WORDS[COMP_CWORD]}" command="\${COMP_WORDS[1]}" value='' word i place=0 glued='' own=yes
  local option='' remote='' connection=() reaches=''
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    _guestctl_offer words '${[...commands.map(({ name }) => name), "--help", "--version"].join(" ")}'
    return
  fi
  for ((i = 2; i < COMP_CWORD; i++)); do
    word="\${COMP_WORDS[i]}"
    # bash takes --name=value and host:port apart.
    if [[ "$word" == '=' ]]; then continue; fi
    if [[ "$word" == ':' ]]; then glued=yes; continue; fi
    if [[ -n "$glued" ]]; then
      glued=''
      if [[ -n "$reaches" ]]; then connection[\${#connection[@]}-1]+=":$word"; else ((place += 1)); fi
      continue
    fi
    reaches=''
    if [[ -n "$value" ]]; then
      value=''
      case " ${CONNECTION_SPELLINGS.join(" ")} " in *" $option "*)
        word=\${word#[\\"\\']}
        word=\${word%[\\"\\']}
        connection+=("$option" "$word")
        reaches=yes
        ;;
      esac
      continue
    fi
    if [[ -n "$own" && "$word" == '--' ]]; then own=''; continue; fi
    if [[ -n "$own" && "$word" == -?* ]]; then option="$word"; value="$(_guestctl_value "$command" "$word")"; continue; fi
    ((place += 1))
  done
  if [[ "$cur" == '=' ]]; then cur=''; fi
  if [[ -n "$glued" ]]; then remote=yes; fi
  if [[ "$cur" == ':' ]]; then cur=''; remote=yes; fi
  if [[ -n "$value" ]]; then
    _guestctl_offer $value
  elif [[ " ${commands.flatMap(({ name, takesCommand }) => (takesCommand ? name : [])).join(" ")} " == *" $command "* ]] && { ((place > 0)) || [[ -z "$own" ]]; }; then
    return
  elif [[ -n "$own" && "$cur" == -* ]]; then
    _guestctl_offer words "$(_guestctl_options "$command")"
  else
    _guestctl_offer $(_guestctl_place "$command" "$place")
  fi
}

complete -F _guestctl guestctl
`;
}

/** A pattern of `case` and what it prints. */
type Case = readonly [pattern: string, kind: string];

function valueCases({ name, options }: CompletedCommand): Case[] {
  const withValue = options.filter(({ type }) => type === "string");
  return withValue.flatMap((option) =>
    spellings(option).map((spelling): Case => [`'${name} ${spelling}'`, kindOf(option.completes)]),
  );
}

function placeCases({ name, completes }: CompletedCommand): Case[] {
  return completes.map((place, index) => {
    const isLast = index === completes.length - 1;
    return [isLast ? `'${name} '*` : `'${name} ${index}'`, kindOf(place)];
  });
}

function kindOf(completes: Completes = "nothing"): string {
  return typeof completes === "string" ? completes : `words ${completes.join(" ")}`;
}

function lines(cases: readonly Case[]): string {
  return cases.map(([pattern, kind]) => `    ${pattern}) echo ${kind} ;;`).join("\n");
}

/** One case for each kind, for patterns of which at most one matches. */
function grouped(all: readonly Case[]): Case[] {
  const byKind = new Map<string, string[]>();
  for (const [pattern, kind] of all) byKind.set(kind, [...(byKind.get(kind) ?? []), pattern]);
  return [...byKind].map(([kind, patterns]) => [patterns.join(" | "), kind]);
}
