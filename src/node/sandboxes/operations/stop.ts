import { GuestError } from "../../client/index.ts";
import { type Instance, SandboxError } from "../substrate/index.ts";
import { CALL_MS, callLimits, type NodeParts, type SandboxEntry, type Warning } from "../state/index.ts";
import { resumeOnFailure, running } from "./suspend.ts";

/**
 * Time that is added to the workload's grace period. During this time, the commands end, the agent sends its last
 * answers, and the substrate's init ends.
 */
const MARGIN_MS = 5_000;

/** The result of stopping a sandbox. */
export interface Stopping {
  /** Contains a warning if the workload may not have had its whole grace period; otherwise empty. */
  readonly warnings: readonly Warning[];
}

/**
 * Stops a sandbox. Its memory is lost, but its disks remain. First asks the agent to stop, because the agent gives the
 * workload its whole grace period. If the agent does not exit, uses the substrate's own stop, which kills the workload
 * after five seconds (hypeman 8853445, lib/instances/stop.go:22).
 */
export async function stop(node: NodeParts, entry: SandboxEntry, operation = "stop"): Promise<Stopping> {
  await running(node, entry);
  const stopping = { ...entry, runEpochMs: undefined, preSnapshot: undefined };
  node.step(operation, entry.name, "stop the agent");
  await node.journal.put(stopping);
  const asked = await askAgent(node, entry);
  let warning: Warning | undefined;
  if ("refusal" in asked) {
    const message = `${asked.refusal}; so the substrate stopped the instance without the agent, and gave the workload only 5 s to end`;
    warning = { code: "STOP_BOUNDED", message };
  } else {
    node.step(operation, entry.name, "wait until the agent has ended");
    const isOff = ({ state }: Instance): boolean => state === "Stopped";
    if (isOff(await node.instances.awaited(stopping, isOff, asked.graceMs + MARGIN_MS))) return { warnings: [] };
    const message = `the agent had not exited ${MARGIN_MS} ms after the grace period of ${asked.graceMs} ms, so the substrate stopped the instance`;
    warning = { code: "STOP_FORCED", message };
  }
  node.step(operation, entry.name, "stop the instance");
  await resumeOnFailure(node, operation, stopping, async () => {
    try {
      await node.instances.changed(stopping, () => node.substrate.stop(entry.instanceId ?? ""), "Stopped");
    } catch (error) {
      // If the instance has powered off by itself meanwhile, the daemon refuses to stop it. Ignore that refusal.
      if ((await node.instances.existing(stopping)).state !== "Stopped") throw error;
    }
  });
  return { warnings: [warning] };
}

/**
 * Asks the agent to stop. Resolves with the longest time that the workload has to end, in milliseconds, or with the
 * reason why the agent does not stop.
 */
async function askAgent(
  node: NodeParts,
  entry: SandboxEntry,
): Promise<{ readonly graceMs: number } | { readonly refusal: string }> {
  try {
    const { stopGraceMs } = await node.guests.ask(entry, (client) => client.stop(callLimits(CALL_MS)));
    return { graceMs: stopGraceMs };
  } catch (error) {
    if (!(error instanceof GuestError || error instanceof SandboxError)) throw error;
    // The agent was already stopping, so the rest of the grace period is not known. Wait as long as for an answer of an
    // agent.
    if (error instanceof GuestError && error.reason === "SHUTTING_DOWN")
      return { graceMs: node.guests.patience.reachTimeoutMs };
    return { refusal: error.message };
  }
}
