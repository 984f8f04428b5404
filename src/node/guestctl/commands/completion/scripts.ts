/*
 * Scripts that a shell sources. Each passes the words of the command line to "guestctl completion --of". The first line
 * of the answer is the kind of completion. For words and paths in the sandbox, the other lines are the completions. The
 * shell itself completes local files and directories.
 */

/** Completion for bash 3.2 or later. */
const BASH = `# Completion of guestctl for bash: source <(guestctl completion bash)
_guestctl() {
  local cur="\${COMP_WORDS[COMP_CWORD]}" line="\${COMP_LINE:0:COMP_POINT}" kind word
  # bash takes words apart here, and completes the last part.
  case "$cur" in '=' | ':') cur='' ;; esac
  COMPREPLY=()
  {
    read -r kind
    case "$kind" in
      file) compopt -o filenames 2> /dev/null; while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -f -- "$cur") ;;
      directory) compopt -o filenames 2> /dev/null; while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -d -- "$cur") ;;
      path)
        compopt -o nospace 2> /dev/null
        # Within quotes, a backslash before a space would be part of the path.
        while IFS= read -r word; do
          case "$cur" in '"'* | "'"*) COMPREPLY+=("$word") ;; *) COMPREPLY+=("$(printf '%q' "$word")") ;; esac
        done
        ;;
      word) while IFS=$'\\t' read -r word _; do COMPREPLY+=("$word"); done ;;
    esac
  } < <("\${COMP_WORDS[0]}" completion --of bash -- "$line" "$cur" 2> /dev/null)
}

complete -F _guestctl guestctl
`;

/** Completion for zsh. The script is sourced after compinit, or is the file _guestctl in a directory of $fpath. */
const ZSH = `#compdef guestctl
# Completion of guestctl for zsh: source <(guestctl completion zsh)
_guestctl() {
  local -a offers
  offers=("\${(@f)$($words[1] completion --of zsh -- "\${(@Q)words[1,CURRENT]}" 2> /dev/null)}")
  case $offers[1] in
    file) compset -P '--*='; _files ;;
    directory) compset -P '--*='; _files -/ ;;
    path) compadd -S '' -- "\${(@)offers[2,-1]}" ;;
    word)
      offers=("\${(@)offers[2,-1]//:/\\\\:}")
      offers=("\${(@)offers/$'\\t'/:}")
      _describe guestctl offers
      ;;
  esac
}

if [[ $funcstack[1] == _guestctl ]]; then
  _guestctl "$@"
else
  compdef _guestctl guestctl
fi
`;

/**
 * Completion for fish 3.1 or later (Debian 11). The script is sourced, or is the file guestctl.fish in
 * ~/.config/fish/completions.
 */
const FISH = `# Completion of guestctl for fish: guestctl completion fish | source
function __guestctl_offers
  set -l words (commandline --tokenize --cut-at-cursor --current-process)
  set -l current (string unescape -- (commandline --current-token --cut-at-cursor))
  set -l offers ($words[1] completion --of fish -- $words "$current" 2> /dev/null)
  set -l prefix (string match --regex -- '^--[^=]*=' "$current")
  switch "$offers[1]"
    case file
      __fish_complete_path (string replace -- "$prefix" '' "$current") | string replace --regex -- '^' "$prefix"
    case directory
      __fish_complete_directories (string replace -- "$prefix" '' "$current") '' | string replace --regex -- '^' "$prefix"
    case path word
      string join -- \\n $offers[2..-1]
  end
end

complete --command guestctl --no-files --keep-order --arguments '(__guestctl_offers)'
`;

export const SCRIPTS: Readonly<Record<"bash" | "zsh" | "fish", string>> = { bash: BASH, zsh: ZSH, fish: FISH };
