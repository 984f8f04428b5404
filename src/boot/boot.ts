import { BootstrapError, type Configuration, describeFault, readBootstrap } from "../config/index.ts";
import type { Environment } from "../domain/index.ts";
import type { Addon } from "../native/index.ts";
import { jsonLog, stderrWriter } from "../platform/index.ts";
import { Agent } from "./agent.ts";
import { guestPlatform } from "./platform.ts";

/** Exit status for a faulty bootstrap channel: EX_CONFIG of sysexits(3). */
const STATUS_CONFIG = 78;

/**
 * Builds the agent from its bootstrap channel and runs it to its end. Resolves with the status that the process should
 * exit with: the workload's, or 78 after every fault of the channel was printed.
 */
export async function boot(addon: Addon): Promise<number> {
  const inherited = addon.environ();
  const configuration = await readConfiguration(inherited);
  if (configuration === undefined) return STATUS_CONFIG;
  const platform = guestPlatform(addon, inherited);
  const log = jsonLog(configuration.logLevel, platform.clock, stderrWriter(addon));
  if (!platform.hasCgroups) log.info("no_cgroups", { consequence: "process trees are found by walking /proc" });
  try {
    return await new Agent(platform, configuration, log).run();
  } finally {
    platform.close();
  }
}

async function readConfiguration(inherited: Environment): Promise<Configuration | undefined> {
  try {
    return await readBootstrap(inherited);
  } catch (error) {
    if (!(error instanceof BootstrapError)) throw error;
    for (const fault of error.faults) process.stderr.write(`guest-agent: ${describeFault(fault)}\n`);
    return undefined;
  }
}
