import type { Instance, Substrate, Tags } from "../substrate/index.ts";
import { ifAmbiguous } from "../substrate/index.ts";
import { JOURNAL_TAG, type JournalEntry, type DaemonParts, NODE_TAG } from "../state/index.ts";
import { orphanedRecord, volumeLeft } from "../operations/index.ts";

/** An object at the substrate with this node's tag. */
export interface TaggedResource {
  readonly kind: "instance" | "snapshot" | "volume" | "ingress";
  readonly id: string;
  /** Name of the object; undefined if it has none. */
  readonly name?: string | undefined;
  readonly tags: Tags;
  /** Removes the object. Rejects with LEFT_BEHIND if only the daemon's operator can remove it. */
  readonly remove: () => Promise<void>;
}

/** Everything that a node has at the substrate, from one listing of each kind. */
export interface NodeResources {
  readonly instances: ReadonlyMap<string, Instance>;
  readonly snapshotIds: ReadonlySet<string>;
  /** All objects, in the order in which they must be removed. */
  readonly all: readonly TaggedResource[];
}

/** Lists everything that has this node's tag. */
export async function nodeResources({ substrate, nodeId }: DaemonParts): Promise<NodeResources> {
  const tags = { [NODE_TAG]: nodeId };
  const [ingresses, instances, snapshots, volumes] = await Promise.all([
    substrate.ingresses(tags),
    substrate.instances(tags),
    substrate.snapshots(tags),
    substrate.volumes(tags),
  ]);
  const all = [
    // Ingresses come first, before their instances. An ingress finds its instance by name. If the ingress remained, it
    // would route requests to a later instance with the same name.
    ...ingresses.map((each) => ({ ...each, kind: "ingress", remove: () => substrate.deleteIngress(each.id) }) as const),
    ...instances.map((each) => ({ ...each, kind: "instance", remove: () => deleteInstance(substrate, each) }) as const),
    ...snapshots.map(
      (each) => ({ ...each, kind: "snapshot", remove: () => substrate.deleteSnapshot(each.id) }) as const,
    ),
    // Volumes come last, because the daemon refuses to delete a volume that an instance uses.
    ...volumes.map((each) => ({ ...each, kind: "volume", remove: () => deleteVolume(substrate, each.id) }) as const),
  ];
  return {
    instances: new Map(instances.map((instance) => [instance.id, instance])),
    snapshotIds: new Set(snapshots.map(({ id }) => id)),
    all,
  };
}

async function deleteInstance(substrate: Substrate, { id, name }: Instance): Promise<void> {
  const found = await substrate.instance(id).catch(ifAmbiguous);
  if (found?.name !== name) throw orphanedRecord(id, name);
  await substrate.deleteInstance(id);
}

async function deleteVolume(substrate: Substrate, id: string): Promise<void> {
  if (!(await substrate.deleteVolume(id))) throw volumeLeft(id);
}

/** Determines which objects have an entry in the journal at the time of the call. */
export class KnownResources {
  readonly #journal: DaemonParts["journal"];
  #entries: readonly JournalEntry[] | undefined;
  #names: Readonly<Record<TaggedResource["kind"], ReadonlySet<string>>> = namesOf([]);

  constructor({ journal }: DaemonParts) {
    this.#journal = journal;
  }

  /**
   * Whether an object of the substrate has an entry in the journal. Call this again right before the object is removed,
   * because the entry may have been added after the objects were listed.
   */
  has({ kind, id, name }: Pick<TaggedResource, "kind" | "id" | "name">): boolean {
    const entries = this.#journal.all();
    if (entries !== this.#entries) this.#names = namesOf(entries);
    this.#entries = entries;
    return this.#names[kind].has(kind === "volume" ? id : (name ?? ""));
  }
}

function namesOf(entries: readonly JournalEntry[]): Record<TaggedResource["kind"], ReadonlySet<string>> {
  const sandboxes = entries.filter((entry) => entry.kind === "sandbox");
  return {
    volume: new Set(entries.map(({ volumeId }) => volumeId)),
    ingress: new Set(sandboxes.flatMap(({ published = [] }) => published.map(({ ingress }) => ingress))),
    instance: new Set(sandboxes.map(({ name, instanceName = name }) => instanceName)),
    snapshot: new Set(entries.flatMap(({ kind, name }) => (kind === "snapshot" ? [name] : []))),
  };
}

/** Returns the objects that have this node's tag, but that were created with a journal other than the current one. */
export function foreignResources({ journal }: DaemonParts, { all }: NodeResources): readonly TaggedResource[] {
  return all.filter(({ tags: { [JOURNAL_TAG]: maker } }) => maker !== undefined && maker !== journal.id);
}
