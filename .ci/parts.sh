# shellcheck shell=bash
# What .ci/run and .ci/nightly share: parts that all run whatever failed before, and a report at the end for readers who
# see the end of the output alone. Source it from the clone's root.
set -uo pipefail
export CI=true
# Not in the clone, which is a new one each time.
export GUEST_AGENT_CACHE="${GUEST_AGENT_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/guest-agent}"

case $(uname -m) in x86_64) machine=x64 ;; *) machine=arm64 ;; esac
# shellcheck disable=SC2034 # the sourcing scripts use it
built=$PWD/dist/linux-$machine/guest-agent

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
failed=()
seconds=()
told() { # told NAME COMMAND...: by a file, as a pipe would wait for whoever still holds it
  local log="$logs/$1"
  shift
  : >"$log"
  "$@" >>"$log" 2>&1 &
  tail -n +1 -f --pid=$! "$log"
  wait $!
}
part() { # part NAME COMMAND...
  local name=$1 began=$SECONDS
  shift
  printf '\n=== %s\n' "$name"
  if told "$name" "$@"; then
    printf '=== %s: passed in %d s\n' "$name" $((SECONDS - began))
  else
    failed+=("$name")
    printf '=== %s: FAILED after %d s\n' "$name" $((SECONDS - began))
  fi
  seconds+=("$name: $((SECONDS - began)) s")
}
report() { # report: what each part took, the ends of those that failed; the status of the run
  printf '\n=== %d s in all; %s\n' "$SECONDS" "$(printf '%s; ' "${seconds[@]}")"
  local name
  for name in "${failed[@]}"; do
    printf '\n=== FAILED: %s\n' "$name"
    [ ! -f "$logs/$name" ] || { grep -E -A 14 '✖|not ok|rror:|^FAILED' "$logs/$name" | head -n 60; tail -n 8 "$logs/$name"; }
  done
  ((${#failed[@]} == 0))
}
