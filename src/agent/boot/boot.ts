import {
  BOOTSTRAP_VARIABLES,
  type BootstrapFault,
  describeFault,
  describeUnknown,
  unknownVariables,
} from "../config/index.ts";
import { KEPT_PIPES_LIMIT, type Log } from "../domain/index.ts";
import { startFileThreads } from "../files/index.ts";
import type { Addon } from "../native/index.ts";
import {
  printError,
  errorLine,
  jsonLog,
  logWarnings,
  stderrLines,
  surviveUncaughtErrors,
  takeInheritance,
} from "../platform/index.ts";
import { Agent } from "./agent.ts";
import { readConfiguration } from "./configuration.ts";
import { guestPlatform } from "./platform.ts";

/** Exit status after too many uncaught errors: EX_SOFTWARE. The launcher ends the remaining processes. */
const STATUS_SOFTWARE = 70;
/** Exit status for an invalid configuration: EX_CONFIG of sysexits(3). */
const STATUS_CONFIG = 78;

/**
 * Builds the agent from its environment variables and from the files that they name, and runs the agent until it ends.
 * Resolves with the exit status of the process: that of the workload, or 78 if the configuration is invalid, after
 * printing every fault.
 */
export async function boot(addon: Addon): Promise<number> {
  const inheritance = takeInheritance(addon, process.env, BOOTSTRAP_VARIABLES);
  // startFileThreads() must run before libuv starts its first thread: libuv reads the number of threads only then.
  startFileThreads();
  const read = await readConfiguration(addon, inheritance.entries, (fault) => exitWithFault(addon, fault));
  if ("faults" in read) {
    for (const fault of read.faults) printError(describeFault(fault));
    for (const unknown of unknownVariables(inheritance.entries)) printError(describeUnknown(unknown));
    return STATUS_CONFIG;
  }
  const { configuration } = read;
  // The platform must exist before the log, because the log's thread inherits the priority that guestPlatform() gives
  // this thread.
  const platform = guestPlatform(addon, inheritance, {
    onPipeEvicted: () => log.warn("kept_pipe_closed", { limit: KEPT_PIPES_LIMIT }),
    onEnded: (pid, { code, signal }) => log.debug("process_ended", { pid, status: code, signal }),
  });
  const lines = stderrLines(addon);
  const log: Log = jsonLog(configuration.logLevel, platform.clock, lines.write);
  logWarnings(log);
  surviveUncaughtErrors(log, platform.clock, () => {
    lines.flush();
    addon.exitNow(STATUS_SOFTWARE);
  });
  if (platform.cgroups === undefined)
    log.info("cgroups_unavailable", { consequence: "process trees are found by walking /proc" });
  let status: number;
  try {
    const ended = new Agent(platform, configuration, log).run();
    // Unknown variables are logged while the workload starts, so that logging does not delay the start.
    for (const { name, meant } of unknownVariables(inheritance.entries)) {
      if (meant === undefined) log.info("variable_ignored", { name });
      else log.warn("variable_misspelt", { name, meant });
    }
    status = await ended;
  } finally {
    platform.cgroups?.close();
    lines.flush();
  }
  platform.launcher?.announceExit();
  return status;
}

/** Prints the fault and ends the process, even if a file system hangs, or if the pipe of standard error is full. */
function exitWithFault(addon: Addon, fault: BootstrapFault): never {
  const lines = stderrLines(addon);
  lines.write(errorLine(describeFault(fault)));
  lines.flush();
  return addon.exitNow(STATUS_CONFIG);
}
