import { ApiFailure, invalidState, notFound } from "./failure.ts";
import {
  asInternal,
  copyInstanceFiles,
  type InstanceRecord,
  type Instances,
  type InstanceState,
  newId,
} from "./instances.ts";
import { Locks } from "./locks.ts";
import { hasTags, type Tags } from "./parameters.ts";
import { Records } from "./records.ts";

/** Which state of its source a snapshot is of: with its memory, or its disk alone. */
export type SnapshotKind = "Standby" | "Stopped";

/** A snapshot as it is kept. Nothing in it says of which processor or agent it was taken: that is the node's to know. */
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

/** What snapshots are asked for by. Everything absent is not looked at. */
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
  readonly #log: (line: string) => void;
  /** A snapshot is not removed while an instance is made of it. */
  readonly #locks = new Locks();

  constructor(folder: string, instances: Instances, log: (line: string) => void) {
    this.#records = new Records(folder);
    this.#instances = instances;
    this.#log = log;
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

  /** Copies an instance, which is suspended meanwhile where it runs. @throws ApiFailure */
  create(source: InstanceRecord, kind: SnapshotKind, name: string, tags: Tags): Promise<SnapshotRecord> {
    return this.#instances.suspended(source, "failed to create snapshot", (current) => {
      const hasMemory = this.#instances.hasMemory(current);
      if (hasMemory !== (kind === "Standby"))
        throw invalidState(
          `a ${kind} snapshot needs a source that is ${kind === "Standby" ? "Running or Standby" : kind}`,
        );
      if (name !== "" && this.list({ tags: {}, name, sourceInstanceId: current.id }).length > 0)
        throw new ApiFailure(409, "conflict", `snapshot name '${name}' already exists for this instance`);
      const id = newId();
      const folder = this.#records.begin(id);
      try {
        const sizeBytes = copyInstanceFiles(this.#instances.folderOf(current.id), folder);
        const createdAt = new Date().toISOString();
        return Promise.resolve(this.#records.save({ id, name, kind, tags, source: current, sizeBytes, createdAt }));
      } catch (error) {
        this.#records.remove(id);
        throw error;
      }
    });
  }

  /** Makes an instance of a snapshot. @throws ApiFailure */
  fork(id: string, name: string, target: InstanceState | undefined): Promise<InstanceRecord> {
    return this.#locks.run(id, async () => {
      const { source } = this.get(id);
      try {
        return await this.#instances.fork(source, this.#records.folderOf(id), name, target);
      } catch (error) {
        throw asInternal("failed to fork snapshot", error, (line) => this.#log(`${id}: ${line}`));
      }
    });
  }

  /** @throws ApiFailure */
  delete(id: string): Promise<void> {
    return this.#locks.run(id, () => {
      this.get(id);
      this.#records.remove(id);
      return Promise.resolve();
    });
  }
}
