import { SandboxError } from "../substrate/index.ts";
import type { Warning } from "./guest.ts";
import type { JournalEntry } from "./journal.ts";
import { differences, type RestoreChoices } from "./keys.ts";
import type { Needs } from "./node.ts";

/**
 * Rejects with SandboxError if a suspended sandbox or snapshot cannot be restored on this host (`differences`).
 * Resolves with the differences that do not prevent it.
 */
export async function compareKeys(
  node: Needs<"substrate" | "cpuClass" | "step">,
  operation: string,
  entry: JournalEntry,
  choices: RestoreChoices,
): Promise<readonly Warning[]> {
  const { name, keys, hypervisor, agentVersion = "" } = entry;
  node.step(operation, name, "compare the keys");
  const [daemon, images] = await Promise.all([node.substrate.facts(), node.substrate.images()]);
  const present = { daemon, images, hypervisor, agentVersion, cpuClass: await node.cpuClass() };
  const warning = differences(name, keys, present, choices);
  return warning === undefined ? [] : [{ code: "BUNDLE_DIFFERS", message: warning }];
}

/** Rejects with SandboxError (CAPABILITY_MISSING) where the entry's hypervisor lacks the feature on this host. */
export async function demandFeature(
  { substrate }: Needs<"substrate">,
  feature: "standby" | "snapshots" | "fork",
  { name, hypervisor }: JournalEntry,
): Promise<void> {
  const { features } = await substrate.facts();
  if (features === undefined || features.get(hypervisor)?.has(feature) === true) return;
  throw new SandboxError("CAPABILITY_MISSING", `${hypervisor}, which runs ${name}, has no ${feature} on this host`);
}
