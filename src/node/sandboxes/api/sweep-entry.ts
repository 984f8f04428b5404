import type { Instance } from "../substrate/index.ts";
import {
  discard,
  finishRotation,
  keptSnapshot,
  madeSnapshot,
  paused,
  settled,
  sourceStillSuspended,
  unfinished,
  unreached,
  withdraw,
} from "../operations/index.ts";
import {
  type DaemonParts,
  type JournalEntry,
  type NodeParts,
  OPERATION_TAG,
  type SandboxEntry,
} from "../state/index.ts";
import type { Report } from "./sweep-report.ts";
import type { NodeResources } from "./resources.ts";

/** Whether a sweep has nothing to do for an entry, according to a listing that was just made. */
export function needsNoSweep(entry: JournalEntry, resources: NodeResources): boolean {
  if (entry.phase !== "ready") return false;
  if (entry.kind === "snapshot") return resources.snapshotIds.has(entry.snapshotId ?? "");
  const instance = resources.instances.get(entry.instanceId ?? "");
  if (instance === undefined || entry.asked !== undefined || unfinished(entry).length > 0) return false;
  if (entry.rotatingSinceMs !== undefined) return false;
  return entry.runEpochMs !== undefined || (SLEEPS.has(instance.state) && entry.asleepBecause === undefined);
}

/**
 * States in which an instance's guest does not run. In these states, the sandbox needs no restore steps until it is
 * resumed.
 */
const SLEEPS: ReadonlySet<string> = new Set(["Standby", "Stopped", "Shutdown"]);

/**
 * Finishes or removes an entry that an earlier process left unfinished. Resolves with the sandbox and its instance if
 * the instance is running and its restore steps are not done. The caller must hold the entry's lock.
 */
export async function sweepEntry(
  node: NodeParts,
  name: string,
  report: Report,
): Promise<{ readonly entry: SandboxEntry; readonly instance: Instance } | undefined> {
  const found = node.journal.get(name);
  if (found === undefined) return undefined;
  const entry = found.kind === "sandbox" && found.phase === "ready" ? await settled(node, found) : found;
  // The daemon may have completed a snapshot although the process that requested it has ended. Keep such a snapshot,
  // because its source may not exist any more.
  const snapshot =
    entry.kind === "snapshot" && entry.phase === "creating" ? await madeSnapshot(node, entry) : undefined;
  if (entry.kind === "snapshot" && snapshot !== undefined) {
    await keptSnapshot(node, entry, snapshot);
    report.completed.push(name);
    return undefined;
  }
  const instance = entry.kind === "sandbox" && entry.phase === "ready" ? await node.instances.find(entry) : undefined;
  const isGone = entry.kind === "sandbox" ? instance === undefined : await isSnapshotGone(node, entry);
  if (entry.phase !== "ready" || isGone) {
    await discard(node, "sweep", entry);
    report.removed.push(name);
    return undefined;
  }
  if (entry.kind !== "sandbox" || instance === undefined) return undefined;
  for (const publication of unfinished(entry)) {
    await withdraw(node, "sweep", entry, publication);
    report.removed.push(publication.hostname);
  }
  if (entry.runEpochMs !== undefined) {
    if (entry.rotatingSinceMs !== undefined && instance.state === "Running")
      await finishRotation(node, node.journal.sandbox(name));
    return undefined;
  }
  const { state, stateError } = instance;
  if (state === "Paused") throw paused(entry);
  if (state === "Unknown") throw unreached(name, stateError);
  if (state === "Standby" && entry.asleepBecause !== undefined) throw sourceStillSuspended(name, entry.asleepBecause);
  if (state !== "Running") return undefined;
  return { entry: node.journal.sandbox(name), instance };
}

/**
 * Whether a snapshot is gone. Requests the daemon's snapshots again, because the sweep's listing may be older than the
 * snapshot.
 */
async function isSnapshotGone({ substrate, tags }: DaemonParts, entry: JournalEntry): Promise<boolean> {
  if (entry.kind !== "snapshot") return false;
  const { operation, snapshotId } = entry;
  const own = operation === undefined ? tags : { ...tags, [OPERATION_TAG]: operation };
  return !(await substrate.snapshots(own)).some(({ id }) => id === snapshotId);
}
