import { SandboxError } from "../substrate/index.ts";
import type { JournalEntry } from "./journal.ts";
import { differences, type RestoreChoices } from "./keys.ts";
import type { DaemonParts } from "./node.ts";
import type { Warning } from "./warnings.ts";

/**
 * Rejects with SandboxError if a suspended sandbox or snapshot cannot be restored on this host (see `differences`).
 * Otherwise resolves with a warning if there is a difference that does not prevent the restore.
 */
export async function compareKeys(
  node: DaemonParts,
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

/**
 * Rejects with SandboxError (CAPABILITY_MISSING) if the hypervisor of the sandbox or snapshot does not support the
 * feature on this host.
 */
export async function requireFeature(
  { substrate }: DaemonParts,
  feature: "standby" | "snapshots" | "fork",
  { name, hypervisor }: JournalEntry,
): Promise<void> {
  const { features } = await substrate.facts();
  if (features === undefined || features.get(hypervisor)?.has(feature) === true) return;
  throw new SandboxError(
    "CAPABILITY_MISSING",
    `${hypervisor}, which runs ${name}, does not support ${feature} on this host`,
  );
}

/**
 * Matches major, minor and patch number, and an optional pre-release such as "-rc.1". A pre-release is older than its
 * release (semver.org, 11).
 */
const VERSION = /^(\d+)\.(\d+)\.(\d+)(-[\w.-]+)?$/;

/**
 * Throws SandboxError. The code is AGENT_TOO_OLD if the agent in the sandbox or snapshot is older than the required
 * version, or if its version is not known. The code is INVALID_SPEC if the required version is malformed. Callers must
 * check this before they wake anything up, because the agent in a sandbox cannot be replaced later.
 */
export function requireAgent({ name, agentVersion = "" }: JournalEntry, least: string | undefined): void {
  if (least === undefined) return;
  const wanted = VERSION.exec(least);
  if (wanted === null)
    throw new SandboxError("INVALID_SPEC", `minAgentVersion: ${JSON.stringify(least)} is not a version such as 0.3.0`);
  const found = VERSION.exec(agentVersion);
  if (found !== null && !isBefore(found, wanted)) return;
  const has = agentVersion === "" ? "an agent of unknown version" : `the agent ${agentVersion}`;
  throw new SandboxError("AGENT_TOO_OLD", `${name} has ${has}, but ${least} or later is required; it was not resumed`);
}

function isBefore(found: RegExpExecArray, wanted: RegExpExecArray): boolean {
  for (const part of [1, 2, 3]) {
    const difference = Number(found[part]) - Number(wanted[part]);
    if (difference !== 0) return difference < 0;
  }
  const [early, least] = [found[4], wanted[4]];
  return early !== undefined && (least === undefined || early < least);
}
