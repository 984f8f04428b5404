import { booted } from "./create.ts";
import { SandboxError } from "./errors.ts";
import { type Awakening, hookText, quiesce } from "./guest.ts";
import type { Entry, HookOutcome, JournalEntry, SandboxEntry, SnapshotEntry } from "./journal.ts";
import { bundleOf } from "./keys.ts";
import type { Node } from "./node.ts";
import { making } from "./removal.ts";
import type { InstanceState } from "./substrate.ts";

/** Suspends a running sandbox to disk: from then on it takes no memory or processor. */
export async function standby(node: Node, entry: SandboxEntry, operation = "standby"): Promise<HookOutcome> {
  await running(node, entry);
  await node.need("standby", entry);
  const suspended = await quiesced(node, operation, entry);
  node.step(operation, entry.name, "suspend it");
  await orAwaken(node, operation, suspended, () =>
    node.changed(suspended, () => node.substrate.standby(entry.instanceId ?? ""), "Standby"),
  );
  return suspended.preSnapshot;
}

/**
 * Does something for which a sandbox is suspended or stopped. Where that fails and the sandbox still runs, it does its
 * duties: it may have been suspended meanwhile.
 */
export async function orAwaken<Value>(
  node: Node,
  operation: string,
  entry: SandboxEntry,
  action: () => Promise<Value>,
): Promise<Value> {
  try {
    return await action();
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
    await node.compareKeys("resume", entry);
    node.step("resume", entry.name, "restore it");
    await node.changed(entry, () => node.substrate.restore(id), "Running");
  } else if (state === "Stopped") {
    node.step("resume", entry.name, "start it");
    const sinceMs = Date.now();
    await node.changed(entry, () => node.substrate.start(id), "Running");
    node.step("resume", entry.name, "wait for the agent");
    node.journal.put({ ...entry, ...(await booted(node, entry, sinceMs)) });
    return undefined;
  } else if (entry.runEpochMs !== undefined) {
    throw wrongState(entry.name, state, "only what sleeps or was stopped is resumed");
  }
  return node.awaken("resume", entry);
}

/** Stops a sandbox: the workload gets its grace period; memory is lost, disks stay. */
export async function stop(node: Node, entry: SandboxEntry): Promise<void> {
  await running(node, entry);
  const stopping = { ...entry, runEpochMs: undefined };
  node.journal.put(stopping);
  node.step("stop", entry.name, "stop it");
  await orAwaken(node, "stop", stopping, () =>
    node.changed(stopping, () => node.substrate.stop(entry.instanceId ?? ""), "Stopped"),
  );
}

/** Takes a snapshot of a running sandbox, which the substrate suspends for it and which then does its duties. */
export async function snapshot(
  node: Node,
  source: SandboxEntry,
  name: string,
): Promise<{ readonly snapshot: SnapshotEntry; readonly awakening: Awakening }> {
  await running(node, source);
  await node.need("snapshots", source);
  const entry: SnapshotEntry = {
    kind: "snapshot",
    name,
    phase: "creating",
    createdMs: Date.now(),
    source: source.name,
    ...inheritance(source),
  };
  const made = await making(node, "snapshot", entry, async () => {
    const suspended = await quiesced(node, "snapshot", source);
    const taken = await orAwaken(node, "snapshot", suspended, () => take(node, suspended, entry));
    return { suspended, taken };
  });
  return { snapshot: made.taken, awakening: await node.awaken("snapshot", made.suspended) };
}

async function take(node: Node, source: Suspended, entry: SnapshotEntry): Promise<SnapshotEntry> {
  const { name } = entry;
  node.step("snapshot", name, "keep the credentials that it wakes up with");
  await node.credentials.copy(source.name, name);
  node.step("snapshot", name, "take it");
  const { template, bundle, cpuClass } = source.keys;
  const tags = {
    ...node.tags,
    // For tools without the journal.
    "svc.template": template,
    "svc.bundle": bundle,
    "svc.cpu_class": cpuClass,
    "svc.pre_snapshot": hookText(source.preSnapshot),
  };
  let id;
  try {
    ({ id } = await node.substrate.createSnapshot(source.instanceId ?? "", name, tags));
  } catch (error) {
    id = (await node.substrate.snapshots(node.tags)).find((each) => each.name === name)?.id;
    if (id === undefined) throw error;
  }
  const taken: SnapshotEntry = { ...entry, ...inheritance(source), phase: "ready", snapshotId: id };
  node.step("snapshot", name, "write down that it is there");
  node.journal.put(taken);
  return taken;
}

/** What a snapshot or fork has of its original. */
export function inheritance(original: JournalEntry): Omit<Entry, "name" | "phase" | "createdMs"> {
  const { image, hypervisor, volumeId, ttlMs, idleAction, agentVersion, keys, preSnapshot } = original;
  return { image, hypervisor, volumeId, ttlMs, idleAction, agentVersion, keys, preSnapshot };
}

/** A sandbox whose PRE_SNAPSHOT hook has run. It counts as suspended until its next duties. */
type Suspended = SandboxEntry & { readonly preSnapshot: HookOutcome };

/** Runs PRE_SNAPSHOT, and notes the keys that a restore will need. */
export async function quiesced(node: Node, operation: string, entry: SandboxEntry): Promise<Suspended> {
  node.step(operation, entry.name, "PRE_SNAPSHOT");
  const { version } = await node.substrate.facts();
  using client = await node.dial(entry);
  const preSnapshot = await quiesce(client, node.patience);
  const agentVersion = client.agentVersion ?? entry.agentVersion ?? "";
  const keys = {
    template: entry.keys.template,
    bundle: bundleOf(entry.hypervisor, version, agentVersion),
    cpuClass: await node.cpuClass(),
  };
  const suspended = { ...entry, runEpochMs: undefined, keys, agentVersion, preSnapshot };
  node.journal.put(suspended);
  return suspended;
}

/** Throws SandboxError (WRONG_STATE) unless the sandbox runs and has done its duties. */
export async function running(node: Node, entry: SandboxEntry): Promise<void> {
  const { state } = await node.existing(entry);
  if (!isRunning(state)) throw wrongState(entry.name, state, "only what runs can be suspended or stopped");
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

export function wrongState(name: string, state: InstanceState, rule: string): SandboxError {
  return new SandboxError("WRONG_STATE", `${name} is ${state}; ${rule}`);
}
