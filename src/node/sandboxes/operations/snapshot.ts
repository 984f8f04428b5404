import { randomUUID } from "node:crypto";
import {
  AGENT_VOLUME_TAG,
  type Awakening,
  requireFeature,
  freezeText,
  hookText,
  isUnknownOutcome,
  type DaemonParts,
  type InstanceParts,
  type NodeParts,
  OPERATION_TAG,
  type SandboxEntry,
  type SnapshotEntry,
} from "../state/index.ts";
import { createOrDiscard } from "./removal.ts";
import { lasting, type Snapshot } from "../substrate/index.ts";
import {
  inheritance,
  restoreSourceOnFailure,
  quiesced,
  suspendable,
  type Suspended,
  type SuspendOptions,
} from "./suspend.ts";

/**
 * Takes a snapshot of a running sandbox. For this, the substrate suspends the sandbox and resumes it. Afterwards the
 * restore steps are run.
 */
export async function snapshot(
  node: NodeParts,
  source: SandboxEntry,
  name: string,
  options: SuspendOptions,
): Promise<{ readonly snapshot: SnapshotEntry; readonly awakening: Awakening }> {
  await suspendable(node, source);
  await requireFeature(node, "snapshots", source);
  await requireFeature(node, "standby", source);
  const entry: SnapshotEntry = {
    kind: "snapshot",
    name,
    phase: "creating",
    createdMs: Date.now(),
    source: source.name,
    ...inheritance(source),
  };
  let suspended: Suspended | undefined;
  const taken = await restoreSourceOnFailure(
    node,
    "snapshot",
    () => suspended,
    () =>
      createOrDiscard(node, "snapshot", entry, async () => {
        suspended = await quiesced(node, "snapshot", source, options);
        return take(node, suspended, entry);
      }),
  );
  // An abort must not end this restore, because the session of the source would stay frozen.
  return { snapshot: taken, awakening: await lasting(() => node.guests.awaken("snapshot", suspended ?? source)) };
}

async function take(node: InstanceParts, source: Suspended, entry: SnapshotEntry): Promise<SnapshotEntry> {
  const { name } = entry;
  node.step(
    "snapshot",
    name,
    "copy the source's credentials, which a fork of the snapshot accepts until it gets new ones",
  );
  await node.credentials.copy(source.name, name);
  node.step("snapshot", name, "take the snapshot");
  const { template, bundle, cpuClass } = source.keys;
  const operation = randomUUID();
  const tags = {
    ...node.tags,
    [OPERATION_TAG]: operation,
    [AGENT_VOLUME_TAG]: entry.agentVolumeId,
    // The following tags are for tools that cannot read the journal.
    "svc.template": template,
    "svc.bundle": bundle,
    "svc.cpu_class": cpuClass,
    "svc.pre_snapshot": hookText(source.preSnapshot),
    "svc.freeze": freezeText(source.preSnapshot),
  };
  const planned: SnapshotEntry = { ...entry, ...inheritance(source), operation };
  await node.journal.put(planned);
  let made: Snapshot | undefined;
  try {
    made = await node.operations.untilAnswered(name, () =>
      node.substrate.createSnapshot(source.instanceId ?? "", name, tags),
    );
  } catch (error) {
    if (!isUnknownOutcome(error)) throw error;
    made = await lasting(() => madeSnapshot(node, planned));
    if (made === undefined) throw error;
  }
  node.step("snapshot", name, "record the snapshot");
  return keptSnapshot(node, planned, made);
}

/**
 * Finds the snapshot of an entry when the daemon's answer to its creation was lost. Returns undefined if the daemon has
 * no complete snapshot for the entry.
 */
export async function madeSnapshot(
  { substrate, tags }: DaemonParts,
  { operation }: SnapshotEntry,
): Promise<Snapshot | undefined> {
  return operation === undefined ? undefined : (await substrate.snapshots({ ...tags, [OPERATION_TAG]: operation }))[0];
}

/** Records in the journal that a snapshot is complete. */
export async function keptSnapshot(
  node: DaemonParts,
  entry: SnapshotEntry,
  { id, sizeBytes }: Snapshot,
): Promise<SnapshotEntry> {
  const kept: SnapshotEntry = { ...entry, phase: "ready", snapshotId: id, sizeBytes };
  await node.journal.put(kept);
  return kept;
}
