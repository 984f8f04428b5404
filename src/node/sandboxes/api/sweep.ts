import { type OperationOptions, SandboxError, throwIfAborted } from "../substrate/index.ts";
import {
  AGENT_VOLUME_TAG,
  bounded,
  credentialDirectories,
  type JournalEntry,
  type DaemonParts,
  type InstanceParts,
  type NodeParts,
  parentOf,
} from "../state/index.ts";
import { byTimeLeft, Frozen, mayBeFrozen } from "./frozen.ts";
import { needsNoSweep, sweepEntry } from "./sweep-entry.ts";
import { Report, type SweepReport } from "./sweep-report.ts";
import { orphanedRecords } from "../operations/index.ts";
import {
  foreignResources,
  KnownResources,
  nodeResources,
  type TaggedResource,
  type NodeResources,
} from "./resources.ts";

/** Progress of a sweep, for `onProgress`. */
export interface SweepProgress {
  /** Number of entries and orphans that are finished, including those that failed. */
  readonly done: number;
  readonly total: number;
  readonly failed: number;
}

/** Options of `Sandboxes.sweep`. */
export interface SweepOptions extends OperationOptions {
  /**
   * Also remove objects of this node that were recorded in another journal. This is meant for a node whose old journal
   * is lost. If two nodes have the same id by mistake, this option removes the sandboxes of the other node.
   */
  readonly takeOver?: boolean | undefined;
  /** Called after each entry or orphan. Must not throw. */
  readonly onProgress?: ((progress: SweepProgress) => void) | undefined;
}

/** How many entries or orphans are worked on concurrently. Each needs a few requests to the daemon. */
const AT_A_TIME = 16;

/**
 * Finishes what earlier processes left undone. First runs missing restore steps, in the order in which the sessions
 * would thaw. Then finishes or removes sandboxes and snapshots that were only partly created or removed, or whose
 * instance is gone. Finally removes orphans: objects at the substrate that have this node's tag but no entry. An object
 * that is just being created already has an entry, so it is kept. Rejects with SandboxError (NODE_ID_CONFLICT), before
 * it changes anything, if objects with this node's tag come from another journal.
 */
export async function sweep(node: NodeParts, { takeOver = false, onProgress }: SweepOptions): Promise<SweepReport> {
  const before = node.journal.all();
  const { known, resources, strays, unfinished } = await workOf(node, takeOver);
  const report = new Report();
  let done = 0;
  const total = unfinished.length + strays.length;
  const onDone = (): void => onProgress?.({ done: ++done, total, failed: report.failed.length });
  onProgress?.({ done, total, failed: 0 });

  const isUrgent = (entry: JournalEntry): boolean => mayBeFrozen(entry) && !isAsked(entry);
  const frozen = new Frozen(node, resources, before, report, onDone);
  const asked = frozen.asked(unfinished.filter((entry) => mayBeFrozen(entry) && isAsked(entry)));
  await frozen.quick(unfinished.filter(isUrgent).toSorted(byTimeLeft));
  const finish = (entries: readonly JournalEntry[]): Promise<void> =>
    bounded(entries, AT_A_TIME, async ({ name }) => {
      if (!node.operations.isBusy(name))
        await report.attempt(name, () =>
          node.operations.exclusive("sweep", name, async () => {
            await sweepEntry(node, name, report);
          }),
        );
      onDone();
    });
  const others = unfinished.filter((entry) => !mayBeFrozen(entry));
  await Promise.all([
    asked.then(() => frozen.silent()),
    finish(others.filter(({ phase }) => phase !== "creating")),
    // A process may have ended while it was creating a fork or snapshot, and the daemon may still be creating it. As
    // long as this is possible, the source's entry has the field `asked`. So handle these sources first, and then the
    // entries in the phase "creating".
    asked.then(() => finish(others.filter(({ phase }) => phase === "creating"))),
  ]);
  for (const kind of ["ingress", "instance", "snapshot", "volume"] as const)
    await bounded(
      strays.filter((resource) => resource.kind === kind),
      AT_A_TIME,
      async (resource) => {
        const label = resource.name ?? resource.id;
        await report.attempt(label, async () => {
          if (known.has(resource)) return;
          node.step("sweep", label, `delete the orphaned ${resource.kind}`);
          await resource.remove();
          report.orphans.push(label);
        });
        onDone();
      },
    );
  // Report each sandbox that the daemon lists more than once, because of orphaned records. Such a sandbox still works.
  for (const instance of resources.instances.values())
    if ((instance.records ?? 1) > 1 && known.has({ ...instance, kind: "instance" }))
      report.fail(instance.name, orphanedRecords(instance));
  await report.attempt("agents", () => sweepAgents(node, report));
  await sweepCredentials(node, report);
  throwIfAborted();
  return report.data;
}

/** The sandboxes, snapshots and objects that a sweep would work on. */
export interface SweepPlan {
  /** Sandboxes that may be running without having run their restore steps. */
  readonly restore: readonly string[];
  /**
   * Sandboxes and snapshots that a sweep would finish or remove, because they were only partly created or removed, or
   * because their instance is gone.
   */
  readonly unfinished: readonly string[];
  /**
   * Resources of this node at the daemon that have no entry in the journal, and volumes of older agents that nothing
   * uses. The latter have the kind "agent volume".
   */
  readonly orphans: readonly {
    readonly kind: TaggedResource["kind"] | "agent volume";
    readonly name: string;
    readonly id: string;
  }[];
}

/** Lists what a sweep would work on now. Changes nothing. Rejects like `sweep`. */
export async function sweepPlan(node: NodeParts, takeOver: boolean): Promise<SweepPlan> {
  const { strays, unfinished: entries } = await workOf(node, takeOver);
  // A sweep leaves out what another process or call is working on.
  const unfinished = entries.filter(({ name }) => !node.operations.isBusy(name));
  const names = (those: readonly JournalEntry[]): string[] => those.map(({ name }) => name);
  const agents: string[] = [];
  for await (const id of unusedAgents(node)) agents.push(id);
  return {
    restore: names(unfinished.filter(mayBeFrozen).toSorted(byTimeLeft)),
    unfinished: names(unfinished.filter((entry) => !mayBeFrozen(entry))),
    orphans: [
      ...strays.map(({ kind, id, name = id }) => ({ kind, name, id })),
      ...agents.map((id) => ({ kind: "agent volume", name: id, id }) as const),
    ],
  };
}

async function workOf(
  node: NodeParts,
  takeOver: boolean,
): Promise<{
  readonly known: KnownResources;
  readonly resources: NodeResources;
  readonly strays: readonly TaggedResource[];
  readonly unfinished: readonly JournalEntry[];
}> {
  const known = new KnownResources(node);
  const resources = await nodeResources(node);
  const foreign = foreignResources(node, resources);
  if (foreign.length > 0 && !takeOver) throw conflict(node, foreign);
  // Objects that belong to an entry are not orphans: they are removed with the entry and reported under its name.
  const strays = resources.all.filter((resource) => !known.has(resource));
  return {
    known,
    resources,
    strays,
    unfinished: node.journal.all().filter((entry) => !needsNoSweep(entry, resources)),
  };
}

function isAsked(entry: JournalEntry): boolean {
  return entry.kind === "sandbox" && entry.asked !== undefined;
}

function conflict({ nodeId }: DaemonParts, foreign: readonly TaggedResource[]): SandboxError {
  const [first] = foreign;
  const example = `${first?.kind} ${first?.name ?? first?.id}`;
  const message = `${foreign.length} of the daemon's resources have the id of this node, ${nodeId}, but belong to another journal (such as ${example}): either another node has the same id, or this node's earlier journal was lost`;
  return new SandboxError("NODE_ID_CONFLICT", message);
}

/** Removes agent volumes that are older than this node's volume and that no node uses. */
async function sweepAgents(node: InstanceParts, report: Report): Promise<void> {
  for await (const id of unusedAgents(node)) {
    node.step("sweep", id, "delete the unused volume of an older agent");
    if (await node.substrate.deleteVolume(id)) report.orphans.push(id);
  }
}

/**
 * Yields the ids of agent volumes that are older than this node's volume and that no node uses.
 *
 * Tags show whether a volume is used: each credential volume has a tag with the id of its agent volume. Forks and
 * snapshots share the credential volume of their origin, and therefore this tag.
 *
 * The daemon's own check is not enough. It refuses to delete the volumes that an instance was created with, but it does
 * not record the volumes of a fork (hypeman 8853445, lib/instances/create.go:444).
 */
async function* unusedAgents(node: InstanceParts): AsyncGenerator<string> {
  for (const id of await node.agents.older()) if (!(await isAgentUsed(node, id))) yield id;
}

async function isAgentUsed({ journal, substrate }: DaemonParts, id: string): Promise<boolean> {
  if (journal.all().some(({ agentVolumeId }) => agentVolumeId === id)) return true;
  const tags = { [AGENT_VOLUME_TAG]: id };
  const users = await Promise.all([substrate.volumes(tags), substrate.instances(tags), substrate.snapshots(tags)]);
  return users.flat().length > 0;
}

/** Removes credential directories that have no entry in the journal. */
async function sweepCredentials(node: InstanceParts, report: Report): Promise<void> {
  const owned = new Set(node.journal.all().flatMap((entry) => directoriesOf(entry)));
  for (const name of await node.credentials.names()) {
    // Check the journal again: the directory may be new, and belong to an entry that was added after the first check.
    // An entry is always written before its directories.
    if (owned.has(name) || node.journal.all().some((entry) => directoriesOf(entry).includes(name))) continue;
    await report.attempt(name, () => node.credentials.remove(name));
  }
}

/**
 * Names of the credential directories that may belong to an entry. While a fork or snapshot is being created, its entry
 * may also have a directory with the credentials of its origin. During a rotation, an entry may also have directories
 * with the new and the old credentials.
 */
function directoriesOf(entry: JournalEntry): readonly string[] {
  const { name, phase } = entry;
  if (phase === "creating") return [name, parentOf(name)];
  return entry.kind === "sandbox" && entry.rotatingSinceMs !== undefined ? credentialDirectories(name) : [name];
}
