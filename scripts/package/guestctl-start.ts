import { LOWEST_NODE, NODE_REQUIREMENT } from "./node.ts";

/** Name of the bundled program beside the module that starts it. */
export const GUESTCTL_MAIN = "lib/main.mjs";

/** guestctl's exit status for a failure of its own (docs/node/guestctl.md). */
const STATUS_OWN = 125;

/**
 * The shell script that people call. It runs the modules beside it with the Node of the machine. The two dashes end
 * Node's own options: without them some versions look for --env-file in all following arguments, including those of a
 * command for a sandbox. The heap may grow to six times its live size before V8 collects all of it; by default V8 does
 * so after every 13 MiB of transferred data (docs/decisions/appendix-attempts.md, "Tunnels").
 */
export const STARTER: string = `#!/bin/sh
own=$(dirname -- "$(readlink -f -- "$0")")
fail() {
  printf 'guestctl: %s\\n' "$1" >&2
  exit ${STATUS_OWN}
}
[ -e "$own/guestctl.mjs" ] || fail "cannot find guestctl.mjs in $own; keep its directory whole, and link to it: ln -s /path/to/guestctl/guestctl $own/"
command -v node >/dev/null 2>&1 || fail 'there is no node in PATH; ${NODE_REQUIREMENT}'
exec node --heap-growing-percent=500 -- "$own/guestctl.mjs" "$@"
`;

/**
 * The module that the script runs. It checks the version of Node before it loads guestctl's modules, because an older
 * Node would reject their syntax and options. Versions before 26 warn about node:sqlite, which stores the journal of
 * sandboxes.
 */
export const ENTRY: string = `const [major, minor] = process.versions.node.split(".").map(Number);
if (major < ${LOWEST_NODE.split(".")[0]} || (major === ${LOWEST_NODE.split(".")[0]} && minor < ${LOWEST_NODE.split(".")[1]})) {
  process.stderr.write("guestctl: Node " + process.versions.node + " is too old; ${NODE_REQUIREMENT}\\n");
  process.exit(${STATUS_OWN});
}
const { emitWarning } = process;
process.emitWarning = (warning, ...more) => {
  if (more[0] !== "ExperimentalWarning") emitWarning.call(process, warning, ...more);
};
await import("./${GUESTCTL_MAIN}");
`;
