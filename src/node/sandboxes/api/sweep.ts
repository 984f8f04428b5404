import { SandboxError } from "../substrate/index.ts";
import {
  AGENT_VOLUME_TAG,
  bounded,
  credentialFolders,
  type JournalEntry,
  type Needs,
  type NodeParts,
  parentOf,
} from "../node/index.ts";
import { byTimeLeft, Frozen, mayBeFrozen } from "./frozen.ts";
import { isInOrder, sweepEntry } from "./sweep-entry.ts";
import { Report, type SweepReport } from "./sweep-report.ts";
import { orphanedRecords } from "../operations/index.ts";
import { foreignThings, KnownThings, nodesThings, type TaggedResource, type Things } from "./things.ts";

/** How far a sweep has come. */
export interface SweepProgress {
  /** Entries and orphans that it is done with, also by a failure. */
  readonly done: number;
  readonly total: number;
  readonly failed: number;
}

/** How to sweep. */
export interface SweepOptions {
  /** Also remove what another journal of this node has made, as its own is lost. Never with one id on two nodes. */
  readonly takeOver?: boolean | undefined;
  /** Called whenever it has come further. Must not throw. */
  readonly onProgress?: ((progress: SweepProgress) => void) | undefined;
}

/** Entries and orphans that are removed or finished at a time: requests to the daemon. */
const AT_A_TIME = 16;

/**
 * Has sandboxes do the duties that an earlier process did not come to, those first that thaw first, and then removes
 * entries that it has not finished, and things with this node's tag and no entry. A thing that is just being made has
 * its entry already, and stays. Rejects with SandboxError (NODE_ID_CONFLICT), before it removes anything, where another
 * journal's things have this node's tag.
 */
export async function sweep(node: NodeParts, { takeOver = false, onProgress }: SweepOptions): Promise<SweepReport> {
  const before = node.journal.all();
  const { known, things, strays, unfinished } = await workOf(node, takeOver);
  const report = new Report();
  let done = 0;
  const total = unfinished.length + strays.length;
  const onDone = (): void => onProgress?.({ done: ++done, total, failed: report.failed.length });
  onProgress?.({ done, total, failed: 0 });

  const isUrgent = (entry: JournalEntry): boolean => mayBeFrozen(entry) && !isAsked(entry);
  const frozen = new Frozen(node, things, before, report, onDone);
  const asked = frozen.asked(unfinished.filter((entry) => mayBeFrozen(entry) && isAsked(entry)));
  await frozen.quick(unfinished.filter(isUrgent).toSorted(byTimeLeft));
  const finish = (entries: readonly JournalEntry[]): Promise<void> =>
    bounded(entries, AT_A_TIME, async ({ name }) => {
      if (!node.turns.isBusy(name))
        await report.attempt(name, () =>
          node.turns.alone("sweep", name, async () => {
            await sweepEntry(node, name, report);
          }),
        );
      onDone();
    });
  const others = unfinished.filter((entry) => !mayBeFrozen(entry));
  await Promise.all([
    asked.then(() => frozen.silent()),
    finish(others.filter(({ phase }) => phase !== "creating")),
    // The daemon may still be making a fork or a snapshot for a process that has ended: then its source is asked for.
    asked.then(() => finish(others.filter(({ phase }) => phase === "creating"))),
  ]);
  for (const kind of ["ingress", "instance", "snapshot", "volume"] as const)
    await bounded(
      strays.filter((thing) => thing.kind === kind),
      AT_A_TIME,
      async (thing) => {
        const label = thing.name ?? thing.id;
        await report.attempt(label, async () => {
          if (known.has(thing)) return;
          node.step("sweep", label, `delete the orphaned ${thing.kind}`);
          await thing.remove();
          report.orphans.push(label);
        });
        onDone();
      },
    );
  // The sandbox itself needs nothing: it is only listed more than once.
  for (const instance of things.instances.values())
    if ((instance.records ?? 1) > 1 && known.has({ ...instance, kind: "instance" }))
      report.fail(instance.name, orphanedRecords(instance));
  await report.attempt("agents", () => sweepAgents(node, report));
  await sweepCredentials(node, report);
  return report.data;
}

/** What a sweep would work on. */
export interface SweepPlan {
  /** Sandboxes that may run without their restore steps. */
  readonly restore: readonly string[];
  /** Sandboxes and snapshots to finish or to remove: half made, half removed, or without their instance. */
  readonly unfinished: readonly string[];
  /** What the daemon has of this node, and the journal does not. */
  readonly orphans: readonly { readonly kind: string; readonly name: string; readonly id: string }[];
}

/** What a sweep would work on now. Changes nothing. Rejects as `sweep`. */
export async function sweepPlan(node: NodeParts, takeOver: boolean): Promise<SweepPlan> {
  const { strays, unfinished } = await workOf(node, takeOver);
  const names = (entries: readonly JournalEntry[]): string[] => entries.map(({ name }) => name);
  return {
    restore: names(unfinished.filter(mayBeFrozen).toSorted(byTimeLeft)),
    unfinished: names(unfinished.filter((entry) => !mayBeFrozen(entry))),
    orphans: strays.map(({ kind, id, name = id }) => ({ kind, name, id })),
  };
}

async function workOf(
  node: NodeParts,
  takeOver: boolean,
): Promise<{
  readonly known: KnownThings;
  readonly things: Things;
  readonly strays: readonly TaggedResource[];
  readonly unfinished: readonly JournalEntry[];
}> {
  const known = new KnownThings(node);
  const things = await nodesThings(node);
  const foreign = foreignThings(node, things);
  if (foreign.length > 0 && !takeOver) throw conflict(node, foreign);
  // Whatever belongs to an entry is removed with it, and reported under its name alone.
  const strays = things.all.filter((thing) => !known.has(thing));
  return { known, things, strays, unfinished: node.journal.all().filter((entry) => !isInOrder(entry, things)) };
}

function isAsked(entry: JournalEntry): boolean {
  return entry.kind === "sandbox" && entry.asked !== undefined;
}

function conflict({ nodeId }: Needs<"nodeId">, foreign: readonly TaggedResource[]): SandboxError {
  const [first] = foreign;
  const message =
    `${foreign.length} of this node's things were made with another journal (such as ${first?.kind} ${first?.name ?? first?.id}): either ` +
    `another node has the id ${nodeId} too, or its journal was lost`;
  return new SandboxError("NODE_ID_CONFLICT", message);
}

/**
 * Removes volumes of agents that are older than that of this node and that nothing of any node uses. The tags decide
 * that. The daemon refuses only what an instance was created with, and a fork has no volume in its eyes (hypeman
 * 8853445, lib/instances/create.go:444). Forks and snapshots share the credential volume of their origin, which names
 * the agent's.
 */
async function sweepAgents(node: Needs<"substrate" | "journal" | "agents" | "step">, report: Report): Promise<void> {
  for (const id of await node.agents.older()) {
    if (await isAgentUsed(node, id)) continue;
    node.step("sweep", id, "delete the unused volume of an older agent");
    if (await node.substrate.deleteVolume(id)) report.orphans.push(id);
  }
}

async function isAgentUsed({ journal, substrate }: Needs<"substrate" | "journal">, id: string): Promise<boolean> {
  if (journal.all().some(({ agentVolumeId }) => agentVolumeId === id)) return true;
  const tags = { [AGENT_VOLUME_TAG]: id };
  const users = await Promise.all([substrate.volumes(tags), substrate.instances(tags), substrate.snapshots(tags)]);
  return users.flat().length > 0;
}

/** Removes credentials of what the journal does not have. */
async function sweepCredentials(node: Needs<"journal" | "credentials">, report: Report): Promise<void> {
  const owned = new Set(node.journal.all().flatMap((entry) => foldersOf(entry)));
  for (const name of await node.credentials.names()) {
    // Again, as it may have been made meanwhile. A fork's entry is written before its folders.
    if (owned.has(name) || node.journal.all().some((entry) => foldersOf(entry).includes(name))) continue;
    await report.attempt(name, () => node.credentials.remove(name));
  }
}

/** Names of the credential folders that belong to an entry as it is now. */
function foldersOf(entry: JournalEntry): readonly string[] {
  const { name, phase } = entry;
  if (phase === "creating") return [name, parentOf(name)];
  return entry.kind === "sandbox" && entry.rotatingSinceMs !== undefined ? credentialFolders(name) : [name];
}
