/**
 * `npm start`: builds the agent, starts it around a workload, and dials it as a node agent would. `npm start -- --keep
 * -- CMD...`: leaves a sandbox up around CMD and prints the lines to talk to it.
 */
import { join } from "node:path";
import { execaNode } from "execa";
import { onEndSignal, runScript, UsageError } from "./machine/script.ts";
import { Report } from "./tour/report.ts";
import { AGENT, GUESTCTL, startSandbox } from "./tour/sandbox.ts";
import * as steps from "./tour/steps.ts";

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
  const report = new Report();
  report.step("Build the agent and guestctl");
  if (!(await build())) return 1;
  report.step("Issue credentials for one instance, and start the agent around a workload");
  await using sandbox = await startSandbox(SPEC);
  report.asked("guestctl issue DIR, then the agent with its bootstrap variables");
  report.came(`${Object.keys(sandbox.variables).join(" ")}\n${AGENT}`);
  using client = await sandbox.dial();
  const parts = { report, sandbox, client };
  try {
    await steps.health(parts);
    await steps.execOnPipes(parts);
    await steps.execInTerminal(parts);
    await steps.keptCommand(parts);
    await steps.environmentLayers(parts);
    await steps.files(parts);
    await steps.snapshotAndRestore(parts);
    await steps.refusals(parts);
    await steps.shutDown(parts);
  } catch (error) {
    console.error(sandbox.log.join("\n"));
    throw error;
  }
  console.log("\nEverything came back as it should.");
  return 0;
}

async function keep(command: readonly string[]): Promise<number> {
  if (!(await build())) return 1;
  await using sandbox = await startSandbox({ process: { args: command }, interactive: true });
  const connection = `--address ${sandbox.address} --credentials ${sandbox.folder}`;
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
