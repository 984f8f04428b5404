import { AGENT_VERSION } from "../../shared/version.ts";
import type { Host } from "./cli/index.ts";
import { COMMANDS } from "./commands/index.ts";

const HELP = `Usage: guestctl COMMAND [options]

Talks to the guest agents of sandboxes.

${[...COMMANDS].map(([name, { summary }]) => `  ${name.padEnd(18)}${summary}`).join("\n")}

  --help            this text; "guestctl COMMAND --help" has more
  --version         version of guestctl

Where the agent is and how to be let in: "guestctl help connection".
Exit status: 125 when guestctl itself fails; "exec" passes the command's own status on.
`;

/** Options of every command, which may also stand before it, by spelling; true: with a value. */
const LEADING: ReadonlyMap<string, boolean> = new Map([
  ...["--sandbox", "--address", "-H", "--bridge", "--credentials", "-c", "--server-name"].map(
    (option) => [option, true] as const,
  ),
  ...["--connect-timeout", "--state", "--api"].map((option) => [option, true] as const),
  ["--json", false],
]);

/** Runs guestctl with the given arguments (without interpreter and script). Resolves with the exit status. */
export async function guestctl(args: readonly string[], host: Host): Promise<number> {
  if (args[0] === "help" && args.length > 1) {
    if (args[1] !== "connection") return guestctl([...args.slice(1), "--help"], host);
    host.stdout.write((await import("./target/index.ts")).CONNECTION_HELP);
    return 0;
  }
  const leading = leadingOptions(args);
  const [name, ...rest] = args.slice(leading.length);
  if (name === "--help" || name === "-h" || name === "help") {
    host.stdout.write(HELP);
    return 0;
  }
  if (name === "--version" || name === "-V") {
    host.stdout.write(`guestctl ${AGENT_VERSION}\n`);
    return 0;
  }
  const entry = name === undefined ? undefined : COMMANDS.get(name);
  if (entry !== undefined) return (await entry.load()).run([...leading, ...rest], host);
  // Overview and version load nothing of the commands' rooms.
  const { reportUnknown } = await import("./unknown-command.ts");
  return reportUnknown(name, [...LEADING.keys()], args.includes("--json"), host);
}

function leadingOptions(args: readonly string[]): readonly string[] {
  let count = 0;
  for (let takesValue; (takesValue = LEADING.get(args[count]?.split("=")[0] ?? "")) !== undefined;) {
    count += takesValue && !args[count]?.includes("=") ? 2 : 1;
  }
  return args.slice(0, count);
}
