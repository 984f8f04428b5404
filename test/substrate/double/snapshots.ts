import type { Hypeman } from "@onkernel/hypeman";
import { ApiFailure, invalidState, notFound } from "./failure.ts";
import { copyInstanceFiles, type InstanceRecord, newId } from "./instance.ts";
import type { Instances } from "./instances.ts";
import { hasTags, Records, type Tags } from "./records.ts";

/**
 * A snapshot on disk, in the API's form. As on the substrate it does not say which processor or agent it needs: the
 * node keeps that.
 */
export interface SnapshotRecord extends Readonly<Hypeman.Snapshot> {
  /** The instance at the time of the snapshot, which the API does not show. */
  readonly source: InstanceRecord;
}

/** The snapshots of a daemon: copies, which outlive their source. */
export class Snapshots {
  readonly #records: Records<SnapshotRecord>;
  readonly #instances: Instances;

  constructor(directory: string, instances: Instances) {
    this.#records = new Records(directory);
    this.#instances = instances;
  }

  list(tags: Tags): SnapshotRecord[] {
    return this.#records.all().filter((each) => hasTags(each.tags, tags));
  }

  /** @throws ApiFailure */
  get(id: string): SnapshotRecord {
    const found = this.#records.get(id);
    if (found === undefined) throw notFound();
    return found;
  }

  /**
   * Copies an instance; one that runs is suspended meanwhile. Where it does not wake up, there is no snapshot. @throws
   * ApiFailure
   */
  async create(
    source: InstanceRecord,
    { kind, name = "", tags = {} }: Hypeman.Instances.SnapshotCreateParams,
    signal: AbortSignal,
  ): Promise<SnapshotRecord> {
    const id = newId();
    try {
      const record = await this.#instances.suspended(source, signal, async (current) => {
        if (this.#instances.machines.hasMemory(current) !== (kind === "Standby"))
          throw invalidState(
            `a ${kind} snapshot needs a source that is ${kind === "Standby" ? "Running or Standby" : kind}`,
          );
        return {
          id,
          name,
          kind,
          tags,
          source_instance_id: current.id,
          source_instance_name: current.name,
          source_hypervisor: "qemu",
          size_bytes: copyInstanceFiles(this.#instances.machines.directoryOf(current.id), this.#records.begin(id)),
          created_at: new Date().toISOString(),
          compression_state: "none",
          source: current,
        } as const;
      });
      signal.throwIfAborted();
      return this.#records.save(record);
    } catch (error) {
      this.#records.remove(id);
      throw asSnapshots(error);
    }
  }

  /** Makes an instance of a snapshot, which cannot be removed meanwhile. @throws ApiFailure */
  fork(id: string, name: string, signal: AbortSignal): Promise<InstanceRecord> {
    return this.#records.alone(id, () =>
      this.#instances.fork(this.get(id).source, this.#records.directoryOf(id), { name, taken: "conflict" }, signal),
    );
  }

  /** @throws ApiFailure */
  delete(id: string): Promise<void> {
    return this.#records.alone(id, async () => this.#records.remove(this.get(id).id));
  }
}

/** Another operation's answer in this one's words (hypeman 8853445, cmd/api/api/snapshots.go:55-62). */
function asSnapshots(error: unknown): unknown {
  if (!(error instanceof ApiFailure)) return error;
  if (error.code === "invalid_state") return new ApiFailure(409, "conflict", error.message);
  // This one has no word for that.
  if (error.code === "insufficient_resources") return new Error(error.message);
  return error;
}
