import { AGENT_VERSION } from "../version.ts";
import type { Host } from "./command-line/index.ts";
import { COMMANDS } from "./commands/index.ts";
import { UsageError } from "./errors.ts";
import { reportFailure } from "./failure.ts";
import { nearest } from "./nearest.ts";

const HELP = `Usage: guestctl COMMAND [options]

Talks to the guest agents of sandboxes.

${[...COMMANDS].map(([name, { summary }]) => `  ${name.padEnd(18)}${summary}`).join("\n")}

  --help            this text; "guestctl COMMAND --help" tells more
  --version         version of guestctl

Where the agent is and how to be let in: --address (or --bridge) and --credentials, GUESTCTL_ADDRESS (or GUESTCTL_BRIDGE)
and GUESTCTL_CREDENTIALS, or a context that has both under a name: "guestctl context --help".
Exit status: 125 when guestctl itself fails; "exec" passes the command's own status on.
`;

/** Runs guestctl with the given arguments (without interpreter and script). Resolves with the exit status. */
export async function guestctl(args: readonly string[], host: Host): Promise<number> {
  if (args[0] === "help" && args.length > 1) return guestctl([...args.slice(1), "--help"], host);
  const [name, ...rest] = args;
  if (name === "--help" || name === "-h" || name === "help") {
    host.stdout.write(HELP);
    return 0;
  }
  if (name === "--version") {
    host.stdout.write(`guestctl ${AGENT_VERSION}\n`);
    return 0;
  }
  const entry = name === undefined ? undefined : COMMANDS.get(name);
  if (entry === undefined) {
    return reportFailure(new UsageError(name === undefined ? "no command given" : unknown(name)), false, host);
  }
  const command = await entry.load();
  return command.run(rest, host);
}

function unknown(name: string): string {
  const meant = nearest(name, COMMANDS.keys());
  return `there is no command ${JSON.stringify(name)}${meant === undefined ? "" : `; did you mean ${meant}?`}`;
}
