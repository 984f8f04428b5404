import { ApiFailure, asInternal, invalidState, notFound } from "./failure.ts";
import { copyInstanceFiles, type InstanceRecord, type InstanceState, newId } from "./instance.ts";
import type { Instances } from "./instances.ts";
import { hasTags, type Tags } from "./parameters.ts";
import { Records } from "./records.ts";

/** The state of the source that a snapshot holds: with memory ("Standby"), or the disk alone ("Stopped"). */
export type SnapshotKind = "Standby" | "Stopped";

/** A snapshot on disk. As on the substrate it does not say which processor or agent it needs: the node keeps that. */
export interface SnapshotRecord {
  readonly id: string;
  /** Empty: none. */
  readonly name: string;
  readonly kind: SnapshotKind;
  readonly tags: Tags;
  readonly source: InstanceRecord;
  readonly sizeBytes: number;
  readonly createdAt: string;
}

/** Which snapshots to list. An absent field matches all. */
export interface SnapshotFilter {
  readonly tags: Tags;
  readonly name?: string;
  readonly kind?: string;
  readonly sourceInstanceId?: string;
}

/** The snapshots of a daemon: copies, which outlive their source. */
export class Snapshots {
  readonly #records: Records<SnapshotRecord>;
  readonly #instances: Instances;

  constructor(folder: string, instances: Instances) {
    this.#records = new Records(folder);
    this.#instances = instances;
  }

  list({ tags, name, kind, sourceInstanceId }: SnapshotFilter): SnapshotRecord[] {
    return this.#records
      .all()
      .filter(
        (each) =>
          hasTags(each.tags, tags) &&
          (name === undefined || each.name === name) &&
          (kind === undefined || each.kind === kind) &&
          (sourceInstanceId === undefined || each.source.id === sourceInstanceId),
      );
  }

  /** @throws ApiFailure */
  get(id: string): SnapshotRecord {
    const found = this.#records.get(id);
    if (found === undefined) throw notFound();
    return found;
  }

  /** Copies an instance; one that runs is suspended meanwhile. @throws ApiFailure */
  create(source: InstanceRecord, kind: SnapshotKind, name: string, tags: Tags): Promise<SnapshotRecord> {
    return this.#instances.suspended(source, "failed to create snapshot", (current) => {
      const hasMemory = this.#instances.machines.hasMemory(current);
      if (hasMemory !== (kind === "Standby"))
        throw invalidState(
          `a ${kind} snapshot needs a source that is ${kind === "Standby" ? "Running or Standby" : kind}`,
        );
      if (name !== "" && this.list({ tags: {}, name, sourceInstanceId: current.id }).length > 0)
        throw new ApiFailure(409, "conflict", `snapshot name '${name}' already exists for this instance`);
      const id = newId();
      const folder = this.#records.begin(id);
      try {
        const sizeBytes = copyInstanceFiles(this.#instances.machines.folderOf(current.id), folder);
        const createdAt = new Date().toISOString();
        return Promise.resolve(this.#records.save({ id, name, kind, tags, source: current, sizeBytes, createdAt }));
      } catch (error) {
        this.#records.remove(id);
        throw error;
      }
    });
  }

  /** Makes an instance of a snapshot, which cannot be removed meanwhile. @throws ApiFailure */
  fork(id: string, name: string, target: InstanceState | undefined): Promise<InstanceRecord> {
    return this.#records.alone(id, async () => {
      const { source } = this.get(id);
      try {
        return await this.#instances.fork(source, this.#records.folderOf(id), name, target);
      } catch (error) {
        throw asInternal("failed to fork snapshot", error);
      }
    });
  }

  /** @throws ApiFailure */
  delete(id: string): Promise<void> {
    return this.#records.alone(id, () => {
      this.get(id);
      this.#records.remove(id);
      return Promise.resolve();
    });
  }
}
