import { AGENT_VERSION } from "../../shared/version.ts";
import type { CommandEntry, Host } from "./cli/index.ts";
import { COMMAND_GROUPS, COMMANDS } from "./commands/index.ts";

const OVERVIEW = COMMAND_GROUPS.map(({ title, commands }) => `${title}:\n${commands.map(line).join("\n")}`).join(
  "\n\n",
);

const HELP = `Usage: guestctl COMMAND [options]

Runs commands, copies files and forwards ports in sandboxes, through the guest agent in each.

${OVERVIEW}

  --help            this text; "guestctl COMMAND --help" shows the options of a command
  --version         version of guestctl

"guestctl help connection" explains how to choose an agent, and its credentials. "guestctl help exit-status" lists the
exit statuses: "exec" exits with the command's own status, and guestctl exits with 125 if it fails itself.
`;

function line([name, { summary }]: readonly [string, CommandEntry]): string {
  return `  ${name.padEnd(18)}${summary}`;
}

/** Options that may also come before the command's name. Maps each spelling of an option to whether it takes a value. */
const LEADING: ReadonlyMap<string, boolean> = new Map([
  ...["--sandbox", "--address", "-H", "--bridge", "--credentials", "-c", "--server-name"].map(
    (option) => [option, true] as const,
  ),
  ...["--connect-timeout", "--state", "--api"].map((option) => [option, true] as const),
  ...["--json", "--verbose", "-v"].map((option) => [option, false] as const),
]);

/** Runs guestctl with the given arguments (without interpreter and script). Resolves with the exit status. */
export async function guestctl(given: readonly string[], host: Host): Promise<number> {
  // kubectl has levels of verbosity, which may precede the command, such as -v=6. guestctl has only one level.
  const args = /^--?v=\d+$/.test(given[0] ?? "") ? ["--verbose", ...given.slice(1)] : given;
  if (args[0] === "help" && args.length > 1) return help(args.slice(1), host);
  const leading = leadingOptions(args);
  const [name, ...rest] = args.slice(leading.length);
  if (args.length === 0 || name === "--help" || name === "-h" || name === "help") {
    host.stdout.write(HELP);
    return 0;
  }
  // Accept a lone -v as --version, as docker does.
  if (name === "--version" || name === "-V" || (args.length === 1 && args[0] === "-v")) {
    host.stdout.write(`guestctl ${AGENT_VERSION}\n`);
    return 0;
  }
  const entry = name === undefined ? undefined : COMMANDS.get(name);
  if (entry !== undefined) return (await entry.load()).run([...leading, ...rest], host);
  // Load this module only to report an unknown command, because --help and --version do not need it.
  const { reportUnknown } = await import("./unknown-command.ts");
  return reportUnknown(name, [...LEADING.keys()], args.includes("--json"), host);
}

/** Prints the help of a command or of a topic. It never runs the command, whatever follows its name. */
async function help([name = "", ...more]: readonly string[], host: Host): Promise<number> {
  if (name === "connection") {
    host.stdout.write((await import("./connection/index.ts")).CONNECTION_HELP);
    return 0;
  }
  if (name === "exit-status") {
    host.stdout.write((await import("./cli/index.ts")).EXIT_STATUS_HELP);
    return 0;
  }
  const command = await COMMANDS.get(name)?.load();
  if (command === undefined) return guestctl([name, "--help"], host);
  const { command: subcommand = command } = command.subcommands?.get(more[0] ?? "") ?? {};
  host.stdout.write(subcommand.help());
  return 0;
}

function leadingOptions(args: readonly string[]): readonly string[] {
  let count = 0;
  for (let takesValue; (takesValue = LEADING.get(args[count]?.split("=")[0] ?? "")) !== undefined;) {
    count += takesValue && !args[count]?.includes("=") ? 2 : 1;
  }
  return args.slice(0, count);
}
