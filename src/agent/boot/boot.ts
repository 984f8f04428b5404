import {
  BOOTSTRAP_VARIABLES,
  BootstrapError,
  type BootstrapFault,
  type Configuration,
  describeFault,
  misspeltVariables,
  NO_ANSWER_PROBLEM,
  readBootstrap,
} from "../config/index.ts";
import { KEPT_PIPES_LIMIT, type Log } from "../domain/index.ts";
import { startFileThreads } from "../files/index.ts";
import type { Addon } from "../native/index.ts";
import {
  complain,
  complaint,
  jsonLog,
  logWarnings,
  stderrLines,
  surviveBugs,
  takeInheritance,
} from "../platform/index.ts";
import type { InheritedEnvironment } from "../session/index.ts";
import { Agent } from "./agent.ts";
import { guestPlatform } from "./platform.ts";

/** Time allowed for reading a file of the bootstrap channel: as long as for a system call of ReadFile. */
const READ_LIMIT_MS = 15_000;
/** Exit status after too many bugs: EX_SOFTWARE. The launcher ends what is left. */
const STATUS_SOFTWARE = 70;
/** Exit status for a faulty bootstrap channel: EX_CONFIG of sysexits(3). */
const STATUS_CONFIG = 78;

/**
 * Builds the agent from its bootstrap channel and runs it to its end. Resolves with the status that the process should
 * exit with: the workload's, or 78 after every fault of the channel was printed.
 */
export async function boot(addon: Addon): Promise<number> {
  const inheritance = takeInheritance(addon, process.env, BOOTSTRAP_VARIABLES);
  // Before libuv's first thread starts: it starts as many as are set then.
  startFileThreads();
  const configuration = await readConfiguration(addon, inheritance.entries);
  if (configuration === undefined) return STATUS_CONFIG;
  // Before the log is created: its thread inherits the priority that the platform gives this thread.
  const platform = guestPlatform(addon, inheritance, {
    onPipeGivenUp: () => log.warn("kept_pipe_closed", { limit: KEPT_PIPES_LIMIT }),
    onEnded: (pid, { code, signal }) => log.debug("process_ended", { pid, status: code, signal }),
  });
  const lines = stderrLines(addon);
  const log: Log = jsonLog(configuration.logLevel, platform.clock, lines.write);
  logWarnings(log);
  surviveBugs(log, platform.clock, () => {
    lines.flush();
    addon.exitNow(STATUS_SOFTWARE);
  });
  if (platform.cgroups === undefined)
    log.info("no_cgroups", { consequence: "process trees are found by walking /proc" });
  let status: number;
  try {
    const ended = new Agent(platform, configuration, log).run();
    // Runs in parallel with the workload's start.
    for (const { name, meant } of misspeltVariables(inheritance.entries))
      log.warn("variable_misspelt", { name, meant });
    status = await ended;
  } finally {
    platform.cgroups?.close();
    lines.flush();
  }
  platform.launcher?.announceExit();
  return status;
}

async function readConfiguration(addon: Addon, inherited: InheritedEnvironment): Promise<Configuration | undefined> {
  try {
    return await readBootstrap(
      inherited,
      (paths, limitBytes) => addon.readFiles(paths, limitBytes),
      ({ cert, key, clientCa }) => addon.acceptsTlsMaterial(cert, key, clientCa),
      (variable, reading) => {
        const limit = setTimeout(() => leave(addon, { variable, problem: NO_ANSWER_PROBLEM }), READ_LIMIT_MS);
        return reading.finally(() => clearTimeout(limit));
      },
    );
  } catch (error) {
    if (!(error instanceof BootstrapError)) throw error;
    for (const fault of error.faults) complain(describeFault(fault));
    for (const { name, meant } of misspeltVariables(inherited)) complain(`${name} is not known; ${meant} may be meant`);
    return undefined;
  }
}

/** Ends the process, even where a thread hangs in a file system, and nobody reads standard error. */
function leave(addon: Addon, fault: BootstrapFault): never {
  const lines = stderrLines(addon);
  lines.write(complaint(describeFault(fault)));
  lines.flush();
  return addon.exitNow(STATUS_CONFIG);
}
