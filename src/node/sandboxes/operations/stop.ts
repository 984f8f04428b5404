import { GuestError } from "../../client/index.ts";
import { type Instance, SandboxError } from "../substrate/index.ts";
import { CALL_MS, type Needs, type SandboxEntry, type Warning } from "../node/index.ts";
import { orAwaken, running } from "./suspend.ts";

/** Time on top of the workload's grace, for commands, last frames and the substrate's init to end. */
const MARGIN_MS = 5_000;

/** How a sandbox was stopped. */
export interface Stopping {
  /** Why its workload may not have had all of its grace; empty: it had. */
  readonly warnings: readonly Warning[];
}

/**
 * Stops a sandbox: memory is lost, disks stay. Asks the agent first, which gives the workload its whole grace. The
 * substrate's own stop kills after five seconds (hypeman 8853445, lib/instances/stop.go:22); it is used if the agent
 * does not end.
 */
export async function stop(
  node: Needs<"substrate" | "journal" | "instances" | "guests" | "step">,
  entry: SandboxEntry,
  operation = "stop",
): Promise<Stopping> {
  await running(node, entry);
  const stopping = { ...entry, runEpochMs: undefined, preSnapshot: undefined };
  await node.journal.put(stopping);
  node.step(operation, entry.name, "stop the agent");
  const asked = await askAgent(node, entry);
  let warning: Warning | undefined;
  if ("refusal" in asked) {
    const message = `${asked.refusal}; the substrate's own stop, which kills after 5 s, was all that its workload had`;
    warning = { code: "STOP_BOUNDED", message };
  } else {
    node.step(operation, entry.name, "wait until it has ended");
    const isOff = ({ state }: Instance): boolean => state === "Stopped";
    if (isOff(await node.instances.awaited(stopping, isOff, asked.graceMs + MARGIN_MS))) return { warnings: [] };
    const message = `the agent had ${asked.graceMs} ms and ${MARGIN_MS} ms more to end, and did not; the substrate stopped it`;
    warning = { code: "STOP_FORCED", message };
  }
  node.step(operation, entry.name, "stop the instance");
  await orAwaken(node, operation, stopping, async () => {
    try {
      await node.instances.changed(stopping, () => node.substrate.stop(entry.instanceId ?? ""), "Stopped");
    } catch (error) {
      // Refused, because the instance ended by itself in the meantime.
      if ((await node.instances.existing(stopping)).state !== "Stopped") throw error;
    }
  });
  return { warnings: [warning] };
}

/** Resolves with the longest time that its workload gets, or with why the agent does not stop. */
async function askAgent(
  node: Needs<"guests">,
  entry: SandboxEntry,
): Promise<{ readonly graceMs: number } | { readonly refusal: string }> {
  try {
    const { stopGraceMs } = await node.guests.ask(entry, (client) => client.stop({ timeoutMs: CALL_MS }));
    return { graceMs: stopGraceMs };
  } catch (error) {
    if (!(error instanceof GuestError || error instanceof SandboxError)) throw error;
    // The agent was asked before, so its workload's remaining time is not known.
    if (error instanceof GuestError && error.reason === "SHUTTING_DOWN")
      return { graceMs: node.guests.patience.reachTimeoutMs };
    return { refusal: error.message };
  }
}
