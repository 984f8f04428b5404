import { booted } from "./create.ts";
import { SandboxError } from "./errors.ts";
import { type Awakening, hookText, quiesce } from "./guest.ts";
import type { HookOutcome, JournalEntry, SandboxEntry, SnapshotEntry } from "./journal.ts";
import { bundleOf, compareKeys, KEY_TAGS, type SnapshotKeys } from "./keys.ts";
import type { Node } from "./node.ts";
import { undone } from "./removal.ts";
import type { InstanceState, Tags } from "./substrate.ts";

/** Tag of a snapshot with the outcome of its PRE_SNAPSHOT hook. */
const HOOK_TAG = "svc.pre_snapshot";

/** Suspends a running sandbox to disk: from then on it takes no memory or processor. */
export async function standby(node: Node, entry: SandboxEntry, operation = "standby"): Promise<HookOutcome> {
  await running(node, entry);
  await node.need("standby", entry);
  const { suspended, hook } = await quiesced(node, operation, entry);
  node.step(operation, entry.name, "suspend it");
  await leave(node, operation, suspended, "Standby", () => node.substrate.standby(entry.instanceId ?? ""));
  return hook;
}

/** Suspends or stops a sandbox. Where that fails and it still runs, it does its duties: it may have been suspended meanwhile. */
async function leave(
  node: Node,
  operation: string,
  entry: SandboxEntry,
  wanted: "Standby" | "Stopped",
  change: () => Promise<void>,
): Promise<void> {
  try {
    await node.changed(entry, wanted, change);
  } catch (error) {
    const instance = await node.instanceOf(entry).catch(() => undefined);
    if (instance !== undefined && isRunning(instance.state)) await node.awaken(operation, entry).catch(() => undefined);
    throw error;
  }
}

/**
 * Brings a sandbox back: one in standby, or one that was restored before an earlier process ended without its duties. One
 * that was stopped boots anew, which needs no duties: undefined.
 */
export async function resume(node: Node, entry: SandboxEntry): Promise<Awakening | undefined> {
  const { state } = await node.existing(entry);
  const id = entry.instanceId ?? "";
  if (state === "Standby") {
    node.step("resume", entry.name, "compare the keys");
    compareKeys(entry.name, entry.keys, await node.present(entry));
    node.step("resume", entry.name, "restore it");
    await node.changed(entry, "Running", () => node.substrate.restore(id));
  } else if (state === "Stopped") {
    node.step("resume", entry.name, "start it");
    const sinceMs = Date.now();
    await node.changed(entry, "Running", () => node.substrate.start(id));
    node.step("resume", entry.name, "wait for the agent");
    node.journal.put({ ...entry, ...(await booted(node, entry, sinceMs)) });
    return undefined;
  } else if (entry.runEpochMs !== undefined) {
    throw new SandboxError("WRONG_STATE", `${entry.name} is ${state}; only what sleeps or was stopped is resumed`);
  }
  return node.awaken("resume", entry);
}

/** Stops a sandbox: the workload gets its grace period; memory is lost, disks stay. */
export async function stop(node: Node, entry: SandboxEntry): Promise<void> {
  await running(node, entry);
  node.journal.put(withoutEpoch(entry));
  node.step("stop", entry.name, "stop it");
  await leave(node, "stop", withoutEpoch(entry), "Stopped", () => node.substrate.stop(entry.instanceId ?? ""));
}

/** Takes a snapshot of a running sandbox, which the substrate suspends for it and which then does its duties. */
export async function snapshot(
  node: Node,
  source: SandboxEntry,
  name: string,
): Promise<{ readonly snapshot: SnapshotEntry; readonly awakening: Awakening }> {
  await running(node, source);
  await node.need("snapshots", source);
  const { suspended } = await quiesced(node, "snapshot", source);
  const entry: SnapshotEntry = {
    kind: "snapshot",
    name,
    phase: "creating",
    createdMs: Date.now(),
    source: source.name,
    ...inheritance(suspended),
  };
  node.step("snapshot", name, "write it down");
  node.journal.add(entry);
  let taken: SnapshotEntry;
  try {
    taken = await take(node, suspended, entry);
  } catch (error) {
    await undone(node, "snapshot", entry, error);
    await node.awaken("snapshot", suspended).catch(() => undefined);
    throw error;
  }
  return { snapshot: taken, awakening: await node.awaken("snapshot", suspended) };
}

async function take(node: Node, source: SandboxEntry, entry: SnapshotEntry): Promise<SnapshotEntry> {
  const { name } = entry;
  node.step("snapshot", name, "keep the credentials that it wakes up with");
  await node.credentials.copy(source.name, name);
  node.step("snapshot", name, "take it");
  const tags = { ...node.tags, ...keyTags(entry.keys), [HOOK_TAG]: hookText(entry.preSnapshot ?? NO_HOOK) };
  let id;
  try {
    ({ id } = await node.substrate.createSnapshot(source.instanceId ?? "", name, tags));
  } catch (error) {
    id = (await node.substrate.snapshots(node.tags)).find((each) => each.name === name)?.id;
    if (id === undefined) throw error;
  }
  const taken: SnapshotEntry = { ...entry, phase: "ready", snapshotId: id };
  node.step("snapshot", name, "write down that it is there");
  node.journal.put(taken);
  return taken;
}

/** What a snapshot or fork has of its original. */
export function inheritance(
  original: JournalEntry,
): Pick<
  JournalEntry,
  "image" | "hypervisor" | "volumeId" | "ttlMs" | "idleAction" | "agentVersion" | "keys" | "preSnapshot"
> {
  const { image, hypervisor, volumeId, ttlMs, idleAction, agentVersion, keys, preSnapshot } = original;
  return { image, hypervisor, volumeId, ttlMs, idleAction, agentVersion, keys, preSnapshot };
}

const NO_HOOK: HookOutcome = { ran: false, timedOut: false, exitCode: 0 };

function keyTags(keys: SnapshotKeys): Tags {
  const { template, bundle, cpuClass } = KEY_TAGS;
  return { [template]: keys.template, [bundle]: keys.bundle, [cpuClass]: keys.cpuClass };
}

/** Runs PRE_SNAPSHOT, and notes the keys that a restore will need. The sandbox counts as suspended until its next duties. */
export async function quiesced(
  node: Node,
  operation: string,
  entry: SandboxEntry,
): Promise<{ readonly suspended: SandboxEntry; readonly hook: HookOutcome }> {
  node.step(operation, entry.name, "PRE_SNAPSHOT");
  const { version } = await node.substrate.facts();
  using client = await node.dial(entry);
  const hook = await quiesce(client, node.patience);
  const agentVersion = client.agentVersion ?? entry.agentVersion ?? "";
  const keys = {
    template: entry.keys.template,
    bundle: bundleOf(entry.hypervisor, version, agentVersion),
    cpuClass: await node.cpuClass(),
  };
  const suspended = { ...withoutEpoch(entry), keys, agentVersion, preSnapshot: hook };
  node.journal.put(suspended);
  return { suspended, hook };
}

function withoutEpoch(entry: SandboxEntry): SandboxEntry {
  return { ...entry, runEpochMs: undefined };
}

/** Throws SandboxError (WRONG_STATE) unless the sandbox runs and has done its duties. */
export async function running(node: Node, entry: SandboxEntry): Promise<void> {
  const { state } = await node.existing(entry);
  if (!isRunning(state)) throw wrongState(entry.name, state, "suspended or stopped");
  if (entry.runEpochMs !== undefined) return;
  throw new SandboxError(
    "WRONG_STATE",
    `${entry.name} has not done its duties since it was suspended; resume it first`,
  );
}

/** "Initializing" too: the agent answers before the substrate notices that init has started the entrypoint. */
export function isRunning(state: InstanceState): boolean {
  return state === "Running" || state === "Initializing";
}

export function wrongState(name: string, state: InstanceState, what: string): SandboxError {
  return new SandboxError("WRONG_STATE", `${name} is ${state}; only what runs can be ${what}`);
}
