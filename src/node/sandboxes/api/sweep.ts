import { messageOf } from "../../../shared/errors.ts";
import {
  type Instance,
  type Remedy,
  SandboxError,
  sandboxError,
  statusOf,
  type Substrate,
  type Tags,
} from "../substrate/index.ts";
import {
  discard,
  ghost,
  keptSnapshot,
  madeSnapshot,
  paused,
  settled,
  sourceAsleep,
  unfinished,
  unreached,
  volumeLeft,
  withdraw,
} from "../operations/index.ts";
import {
  AGENT_VOLUME_TAG,
  type Awakening,
  JOURNAL_TAG,
  type JournalEntry,
  type Needs,
  NODE_TAG,
  parentOf,
  type SandboxEntry,
  type Warning,
} from "../node/index.ts";

/** What a sweep has done, by names and ids. */
export interface SweepReport {
  /** Sandboxes and snapshots that were half made or half removed, or lost their instance; hostnames half published. */
  readonly removed: readonly string[];
  /**
   * Instances, snapshots, volumes and ingresses of this node that are not in its journal; volumes of older agents that
   * no node uses.
   */
  readonly orphans: readonly string[];
  /** Sandboxes that ran after a restore without having done their duties. */
  readonly awakened: readonly string[];
  /** Warnings about those that were awakened, with the error of the clock that CLOCK_OFF is about. */
  readonly warnings: readonly (Warning & { readonly name: string } & Pick<Awakening, "clockErrorMs">)[];
  /** Snapshots that the daemon has taken although the process that asked for them has ended. */
  readonly completed: readonly string[];
  /** What could not be done, and why. The next sweep tries again. */
  readonly failed: readonly {
    readonly name: string;
    readonly code: string;
    readonly message: string;
    /** What to do; undefined where the message says it. */
    readonly nextStep?: string | undefined;
    readonly remedy?: Remedy | undefined;
  }[];
}

const INTERNAL = { code: "INTERNAL", nextStep: undefined, remedy: undefined };

/** How to sweep. */
export interface SweepOptions {
  /** Also remove what another journal of this node has made, as its own is lost. Never with one id on two nodes. */
  readonly takeOver?: boolean | undefined;
}

/**
 * Removes entries that an earlier process has not finished, and things with this node's tag and no entry. A thing that
 * is just being made has its entry already, and stays. Rejects with SandboxError (NODE_ID_CONFLICT), before it removes
 * anything, where another journal's things have this node's tag.
 */
export async function sweep(
  node: Needs<
    "nodeId" | "tags" | "substrate" | "journal" | "credentials" | "agents" | "turns" | "instances" | "guests" | "step"
  >,
  { takeOver = false }: SweepOptions,
): Promise<SweepReport> {
  const found = await nodesThings(node);
  const foreign = found.filter(({ tags }) => isForeign(node, tags));
  if (foreign.length > 0 && !takeOver) throw conflict(node, foreign);
  // Whatever belongs to an entry is removed with it, and reported under its name alone.
  const strays = found.filter((thing) => !isKnown(node, thing));
  const report = {
    removed: [],
    orphans: [],
    awakened: [],
    warnings: [],
    completed: [],
    failed: [],
  } as Writable<SweepReport>;
  const attempt = async (name: string, action: () => Promise<void>): Promise<void> => {
    try {
      await action();
    } catch (error) {
      const failure = sandboxError(error);
      // Another process works on it, so it is not left over.
      if (failure instanceof SandboxError && failure.code === "SANDBOX_BUSY") return;
      const { code, nextStep, remedy } = failure instanceof SandboxError ? failure : INTERNAL;
      report.failed.push({ name, code, message: messageOf(failure), nextStep, remedy });
    }
  };
  for (const { name } of node.journal.all()) {
    if (node.turns.isBusy(name)) continue;
    await attempt(name, () => node.turns.alone("sweep", name, () => sweepEntry(node, name, report)));
  }
  // Volumes last: one that an instance has cannot be deleted.
  for (const thing of strays) {
    if (isKnown(node, thing)) continue;
    const label = thing.name ?? thing.id;
    await attempt(label, async () => {
      node.step("sweep", label, `delete the orphaned ${thing.kind}`);
      await thing.remove();
      report.orphans.push(label);
    });
  }
  await attempt("agents", () => sweepAgents(node, report));
  for (const folder of await node.credentials.names()) {
    const known = node.journal
      .all()
      .some(({ name, phase }) => name === folder || (parentOf(name) === folder && phase === "creating"));
    if (!known) await attempt(folder, () => node.credentials.remove(folder));
  }
  return report;
}

type Writable<Report> = {
  -readonly [Key in keyof Report]: Report[Key] extends readonly (infer Each)[] ? Each[] : never;
};

/** Something at the substrate with this node's tag. */
interface TaggedResource {
  readonly kind: "instance" | "snapshot" | "volume" | "ingress";
  readonly id: string;
  /** Undefined: it has none. */
  readonly name?: string | undefined;
  readonly tags: Tags;
  /** Rejects with LEFT_BEHIND where only the daemon's operator can. */
  readonly remove: () => Promise<void>;
}

async function nodesThings({ substrate, nodeId }: Needs<"nodeId" | "substrate">): Promise<readonly TaggedResource[]> {
  const tags = { [NODE_TAG]: nodeId };
  const [ingresses, instances, snapshots, volumes] = await Promise.all([
    substrate.ingresses(tags),
    substrate.instances(tags),
    substrate.snapshots(tags),
    substrate.volumes(tags),
  ]);
  return [
    // Ingresses first: they lead to whatever has the name of their instance.
    ...ingresses.map((each) => ({ ...each, kind: "ingress", remove: () => substrate.deleteIngress(each.id) }) as const),
    ...instances.map((each) => ({ ...each, kind: "instance", remove: () => deleteInstance(substrate, each) }) as const),
    ...snapshots.map(
      (each) => ({ ...each, kind: "snapshot", remove: () => substrate.deleteSnapshot(each.id) }) as const,
    ),
    ...volumes.map((each) => ({ ...each, kind: "volume", remove: () => deleteVolume(substrate, each.id) }) as const),
  ];
}

async function deleteInstance(substrate: Substrate, { id, name }: Instance): Promise<void> {
  // 409: several have the id.
  const found = await substrate.instance(id).catch((error: unknown) => {
    if (statusOf(error) !== 409) throw error;
  });
  if (found?.name !== name) throw ghost(id, name);
  await substrate.deleteInstance(id);
}

async function deleteVolume(substrate: Substrate, id: string): Promise<void> {
  if (!(await substrate.deleteVolume(id))) throw volumeLeft(id);
}

/** Whether it has an entry. Check right before the removal: it may have been made since the listing. */
function isKnown({ journal }: Needs<"journal">, { kind, id, name }: TaggedResource): boolean {
  return journal.all().some((entry) => {
    if (kind === "volume") return entry.volumeId === id;
    if (kind === "ingress") return entry.kind === "sandbox" && publishes(entry, name);
    const itsName = entry.kind === "sandbox" ? (entry.instanceName ?? entry.name) : entry.name;
    return itsName === name && (entry.kind === "snapshot") === (kind === "snapshot");
  });
}

function publishes({ published = [] }: SandboxEntry, ingress: string | undefined): boolean {
  return published.some((each) => each.ingress === ingress);
}

function isForeign({ journal }: Needs<"journal">, tags: Tags): boolean {
  return tags[JOURNAL_TAG] !== undefined && tags[JOURNAL_TAG] !== journal.id;
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
async function sweepAgents(
  node: Needs<"substrate" | "journal" | "agents" | "step">,
  report: Writable<SweepReport>,
): Promise<void> {
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

async function sweepEntry(
  node: Needs<"tags" | "substrate" | "journal" | "credentials" | "turns" | "instances" | "guests" | "step">,
  name: string,
  report: Writable<SweepReport>,
): Promise<void> {
  const found = node.journal.get(name);
  if (found === undefined) return;
  const entry = found.kind === "sandbox" && found.phase === "ready" ? await settled(node, found) : found;
  // Taken for a process that has ended: it is whole, and may be all that is left of its source.
  const snapshot =
    entry.kind === "snapshot" && entry.phase === "creating" ? await madeSnapshot(node, entry) : undefined;
  if (entry.kind === "snapshot" && snapshot !== undefined) {
    await keptSnapshot(node, entry, snapshot);
    report.completed.push(name);
    return;
  }
  if (entry.phase !== "ready" || (await isGone(node, entry))) {
    await discard(node, "sweep", entry);
    report.removed.push(name);
    return;
  }
  if (entry.kind !== "sandbox") return;
  for (const publication of unfinished(entry)) {
    await withdraw(node, "sweep", entry, publication);
    report.removed.push(publication.hostname);
  }
  if (entry.runEpochMs !== undefined) return;
  const { state, stateError } = await node.instances.existing(entry);
  if (state === "Paused") throw paused(name);
  if (state === "Unknown") throw unreached(name, stateError);
  if (state === "Standby" && entry.asleepBecause !== undefined) throw sourceAsleep(name, entry.asleepBecause);
  if (state !== "Running") return;
  const { warnings, clockErrorMs } = await node.guests.awaken("sweep", node.journal.sandbox(name));
  report.awakened.push(name);
  report.warnings.push(...warnings.map((warning) => ({ ...warning, name, clockErrorMs })));
}

async function isGone(node: Needs<"substrate" | "instances">, entry: JournalEntry): Promise<boolean> {
  if (entry.kind === "sandbox") return (await node.instances.find(entry)) === undefined;
  return !(await node.substrate.snapshots({})).some(({ id }) => id === entry.snapshotId);
}
