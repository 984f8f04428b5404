import { messageOf } from "../../shared/errors.ts";
import { withdrawAll } from "./ingress.ts";
import type { JournalEntry, SandboxEntry, SnapshotEntry } from "./journal.ts";
import { JOURNAL_TAG, type Node, parentOf } from "./node.ts";

/** Removes all that belongs to an entry of any phase, and the entry last. */
export async function discard(node: Node, operation: string, entry: JournalEntry): Promise<void> {
  const { name, volumeId } = entry;
  node.journal.put({ ...entry, phase: "removing" });
  if (entry.kind === "sandbox") await withdrawAll(node, operation, entry);
  node.step(operation, name, entry.kind === "sandbox" ? "delete the instance" : "delete the snapshot");
  if (entry.kind === "sandbox") await discardInstance(node, entry);
  else await discardSnapshot(node, entry);
  // Forks share the volume of their origin: it goes with the last of them.
  const isShared = (): boolean =>
    node.journal.all().some((other) => other.name !== name && other.volumeId === volumeId);
  const wasShared = isShared();
  if (!wasShared) {
    node.step(operation, name, "delete the credential volume");
    await discardVolume(node, volumeId);
  }
  node.step(operation, name, "delete the credentials");
  await node.credentials.remove(name);
  await node.credentials.remove(parentOf(name));
  node.step(operation, name, "forget it");
  node.journal.remove(name);
  // The others may have been removed in the meantime, each while it was not the last.
  if (wasShared && !isShared()) await discardVolume(node, volumeId);
}

async function discardInstance(node: Node, entry: SandboxEntry): Promise<void> {
  const instance = await node.instanceOf(entry);
  if (instance === undefined) return;
  const { id } = instance;
  await gone(node.substrate.deleteInstance(id), async () => (await node.substrate.instance(id)) === undefined);
}

/** Deletes the volume, unless another node made it under the same id. */
async function discardVolume(node: Node, id: string): Promise<void> {
  const tags = (await node.substrate.volume(id))?.tags;
  if (tags?.[JOURNAL_TAG] !== node.journal.id) return;
  await gone(node.substrate.deleteVolume(id), async () => (await node.substrate.volume(id)) === undefined);
}

async function discardSnapshot(node: Node, { name, snapshotId }: SnapshotEntry): Promise<void> {
  const all = await node.substrate.snapshots(node.tags);
  const id = snapshotId ?? all.find((each) => each.name === name)?.id;
  if (id === undefined) return;
  const isGone = async (): Promise<boolean> => !(await node.substrate.snapshots({})).some((each) => each.id === id);
  await gone(node.substrate.deleteSnapshot(id), isGone);
}

/** Waits for a removal. Ignores a failure if the thing is gone: only the answer was lost. */
async function gone(removal: Promise<unknown>, isGone: () => Promise<boolean>): Promise<void> {
  try {
    await removal;
  } catch (error) {
    if (!(await isGone())) throw error;
  }
}

/**
 * Writes an entry, then makes the thing that it names. If that fails, removes all of it, or leaves it to the next
 * sweep.
 */
export async function making<Made>(
  node: Node,
  operation: string,
  entry: JournalEntry,
  make: () => Promise<Made>,
): Promise<Made> {
  const { name } = entry;
  node.step(operation, name, "write it down");
  node.journal.add(entry);
  try {
    return await make();
  } catch (error) {
    try {
      await discard(node, operation, node.journal.get(name) ?? entry);
    } catch (second) {
      node.step(operation, name, `leave the rest to the next sweep: ${messageOf(second)}`);
    }
    throw error;
  }
}
