import { messageOf } from "../../../shared/errors.ts";
import { type Instance, lasting, ORPHANED_RECORDS_STEP, SandboxError } from "../substrate/index.ts";
import { withdrawAll } from "./ingress.ts";
import {
  JOURNAL_TAG,
  type JournalEntry,
  type DaemonParts,
  type InstanceParts,
  OPERATION_TAG,
  parentOf,
  type SandboxEntry,
  type SnapshotEntry,
} from "../state/index.ts";

/**
 * Removes everything that belongs to an entry, whatever the entry's phase, and finally the entry itself. If the daemon
 * refuses to delete the volume, removes everything else and rejects with LEFT_BEHIND.
 */
export async function discard(node: InstanceParts, operation: string, entry: JournalEntry): Promise<void> {
  const { name, volumeId } = entry;
  await node.journal.put({ ...entry, phase: "removing" });
  if (entry.kind === "sandbox") await withdrawAll(node, operation, entry);
  const step = (what: string): void => node.step(operation, name, what);
  if (entry.kind === "sandbox") await discardInstance(node, entry, step);
  else await discardSnapshot(node, entry, step);
  // Forks share the credential volume of their origin, so it is deleted together with the last entry that uses it.
  const isShared = (): boolean =>
    node.journal.all().some((other) => other.name !== name && other.volumeId === volumeId);
  const wasShared = isShared();
  let isLeft = false;
  if (!wasShared) isLeft = !(await discardVolume(node, volumeId, step));
  node.step(operation, name, "delete the credentials");
  await node.credentials.remove(name);
  await node.credentials.remove(parentOf(name));
  node.step(operation, name, "remove the entry from the journal");
  await node.journal.remove(name);
  // Check again, because all entries that share the volume may be removed at the same time. At the first check each of
  // them still sees the others, so none deletes the volume.
  if (wasShared && !isShared()) isLeft = !(await discardVolume(node, volumeId, step));
  if (isLeft) throw volumeLeft(volumeId, `${name} is removed; `);
}

/**
 * Creates the error for a volume that the daemon refuses to delete, because the daemon's records still attach the
 * volume to an instance that no longer exists (volumes/manager.go:369).
 */
export function volumeLeft(id: string, before = ""): SandboxError {
  const message = `${before}the volume ${id} is not removed: the daemon lists it as in use by an instance that does not exist`;
  const nextStep = `a daemon that is killed while it creates an instance leaves such a volume; only the daemon's operator can remove the volume: stop the daemon, delete volumes/${id} in its data directory, and start the daemon again; no sandbox uses the credentials in this volume`;
  return new SandboxError("LEFT_BEHIND", message, undefined, { nextStep });
}

/**
 * Creates the error for an orphaned record of an interrupted fork. The daemon lists the instance of such a record, but
 * answers 404 for it.
 */
export function orphanedRecord(id: string, name: string): SandboxError {
  const message = `the daemon lists an instance ${name} with the id ${id}, but answers 404 for it; the instance does not run`;
  return new SandboxError("LEFT_BEHIND", message, undefined, { nextStep: ORPHANED_RECORDS_STEP });
}

/** Creates the error for an instance that exists, but is listed more than once because of orphaned records. */
export function orphanedRecords({ id, name, records = 1 }: Instance): SandboxError {
  const message = `the daemon lists ${name} ${records} times under the id ${id}: only one of these records belongs to the sandbox`;
  return new SandboxError("LEFT_BEHIND", message, undefined, { nextStep: ORPHANED_RECORDS_STEP });
}

/** Reports a step of the removal. Not called if there is nothing to remove. */
type Say = (what: string) => void;

async function discardInstance(node: InstanceParts, entry: SandboxEntry, step: Say): Promise<void> {
  const instance = await node.instances.find(entry);
  if (instance === undefined) return;
  step("delete the instance");
  const { id } = instance;
  await gone(
    node.operations.untilAnswered(entry.name, () => node.substrate.deleteInstance(id)),
    async () => (await node.substrate.instance(id)) === undefined,
  );
}

/**
 * Deletes the credential volume, unless another node created the volume of that id. Resolves with false if the daemon
 * refuses to delete it.
 */
async function discardVolume({ substrate, journal }: DaemonParts, id: string, step: Say): Promise<boolean> {
  const tags = (await substrate.volume(id))?.tags;
  if (tags?.[JOURNAL_TAG] !== journal.id) return true;
  step("delete the credential volume");
  return gone(substrate.deleteVolume(id), async () => (await substrate.volume(id)) === undefined);
}

async function discardSnapshot(
  node: DaemonParts,
  { name, snapshotId, operation }: SnapshotEntry,
  step: Say,
): Promise<void> {
  const own = operation === undefined ? node.tags : { ...node.tags, [OPERATION_TAG]: operation };
  const id = snapshotId ?? (await node.substrate.snapshots(own)).find((each) => each.name === name)?.id;
  if (id === undefined) return;
  step("delete the snapshot");
  const isGone = async (): Promise<boolean> => !(await node.substrate.snapshots(own)).some((each) => each.id === id);
  await gone(node.substrate.deleteSnapshot(id), isGone);
}

/**
 * Waits for a deletion. If the deletion fails, but the object no longer exists, only the daemon's answer was lost, so
 * the failure is ignored. Resolves with false if the daemon refused the deletion.
 */
async function gone(removal: Promise<unknown>, isGone: () => Promise<boolean>): Promise<boolean> {
  try {
    return (await removal) !== false;
  } catch (error) {
    if (!(await isGone())) throw error;
    return true;
  }
}

/**
 * Adds an entry to the journal, and then creates the sandbox or snapshot. If the creation fails, everything is removed,
 * either at once or by the next sweep.
 */
export async function createOrDiscard<Made>(
  node: InstanceParts,
  operation: string,
  entry: JournalEntry,
  make: () => Promise<Made>,
): Promise<Made> {
  const { name } = entry;
  node.step(operation, name, "add an entry to the journal");
  await node.journal.add(entry);
  try {
    return await make();
  } catch (error) {
    await lasting(async () => {
      try {
        await discard(node, operation, node.journal.get(name) ?? entry);
      } catch (second) {
        node.step(operation, name, `leave the rest of the removal to the next sweep: ${messageOf(second)}`);
      }
    });
    throw error;
  }
}
