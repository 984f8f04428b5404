/**
 * `npm start`: builds the agent, starts it around a workload, and shows what guestctl does with it. `npm start --
 * --keep -- CMD...`: leaves a sandbox up around CMD and prints the lines to talk to it.
 */
import { join } from "node:path";
import { execaNode } from "execa";
import { onEndSignal, runScript, UsageError } from "./machine/script.ts";
import { AGENT, GUESTCTL, startSandbox } from "./tour/sandbox.ts";
import { STEPS } from "./tour/steps.ts";

const USAGE = `usage: npm start                        the tour
       npm start -- --keep -- COMMAND…  a sandbox around COMMAND, until it ends`;

/** The tour's sandbox. */
const SPEC = {
  process: {
    args: [process.execPath, join(import.meta.dirname, "tour", "workload.ts")],
    env: { TOUR_PROCESS: "from-process-spec", TOUR_SHARED: "from-process-spec" },
  },
  hooks: { preSnapshot: { args: ["sh", "-c", "echo at rest"] } },
  env: { TOUR_INHERITED: "from-image", TOUR_SHARED: "from-image" },
};

async function main(args: readonly string[]): Promise<number> {
  const [first, separator, ...command] = args;
  if (first === undefined) return tour();
  if (first !== "--keep") throw new UsageError(`"${first}" is not understood`);
  if (separator !== "--" || command.length === 0) throw new UsageError("--keep is followed by -- and a command");
  return keep(command);
}

/** Whether there is a build of these sources now; it reports failures on stderr. */
async function build(): Promise<boolean> {
  const options = { stdout: "inherit", stderr: "inherit", reject: false } as const;
  const { failed } = await execaNode(
    join(import.meta.dirname, "build.ts"),
    [process.arch, "--unless-current"],
    options,
  );
  if (failed) process.stderr.write("the agent could not be built: see above\n");
  return !failed;
}

async function tour(): Promise<number> {
  console.log("1. Build the agent and guestctl");
  if (!(await build())) return 1;
  console.log(`\n2. Issue credentials for one instance, and start the agent around a workload\n     ${AGENT}`);
  await using sandbox = await startSandbox(SPEC);
  for (const [index, { title, line, shows }] of STEPS.entries()) {
    console.log(`\n${index + 3}. ${title}\n   $ ${line}`);
    const output = (await sandbox.shell(line)).trim().replaceAll("\r", "");
    console.log(output.replaceAll(/^/gm, "     "));
    if (!shows.test(output)) throw new Error(`that should show ${String(shows)}; the log:\n${sandbox.log.join("\n")}`);
  }
  console.log(`\n${STEPS.length + 3}. The end: SIGTERM goes to the workload, its status comes back as the agent's`);
  sandbox.kill("SIGTERM");
  const { exitCode } = await sandbox.ended;
  console.log(`     the agent left with ${exitCode ?? "a signal"}`);
  if (exitCode !== 42) throw new Error("that should be 42");
  console.log("\nEverything came back as it should.");
  return 0;
}

async function keep(command: readonly string[]): Promise<number> {
  if (!(await build())) return 1;
  await using sandbox = await startSandbox({ process: { args: command }, interactive: true });
  const connection = `--address ${sandbox.address} --credentials ${sandbox.credentials}`;
  process.stderr.write(`
A sandbox around ${command[0] ?? ""} is up, until that ends or you press Ctrl-C. In another terminal:
  ${GUESTCTL} health ${connection}
  ${GUESTCTL} exec ${connection} -- id
  ${GUESTCTL} exec ${connection} -it -- sh

`);
  onEndSignal(() => sandbox.kill("SIGTERM"));
  const { exitCode } = await sandbox.ended;
  return exitCode ?? 1;
}

await runScript("start", USAGE, () => main(process.argv.slice(2)));
// Does not wait for open handles, such as a refused connection.
process.exit();
