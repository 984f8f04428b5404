import { existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import { freeAddress, newMac } from "./addresses.ts";
import { ApiFailure, asInternal, invalidRequest, invalidState, notFound } from "./failure.ts";
import { MOST_VOLUMES } from "./guest.ts";
import {
  type Command,
  copyInstanceFiles,
  demandForkable,
  type InstanceRecord,
  type InstanceRequest,
  type InstanceState,
  newId,
  type VolumeMount,
} from "./instance.ts";
import { type Host, Machines } from "./machines.ts";
import { hasTags, type Tags } from "./parameters.ts";
import { Records } from "./records.ts";
import { mountProblem } from "./requests.ts";
import { MEMORY } from "./vm.ts";

/** The instances of a daemon: their records, what may be done in which state, and one change of each at a time. */
export class Instances {
  readonly machines: Machines;
  readonly #records: Records<InstanceRecord>;
  readonly #host: Host;
  /** Names of instances that are being made. */
  readonly #takenNames = new Set<string>();

  private constructor(records: Records<InstanceRecord>, machines: Machines, host: Host) {
    this.#records = records;
    this.machines = machines;
    this.#host = host;
  }

  /** Opens the instances of a folder, and adopts those that run. */
  static async open(folder: string, host: Host): Promise<Instances> {
    const machines = await Machines.open(folder, host);
    return new Instances(new Records(folder), machines, host);
  }

  get runningCount(): number {
    return this.#records.all().filter((instance) => this.machines.isRunning(instance)).length;
  }

  /** Instances with these tags. Those on standby are listed only for `state` "Standby", as in the substrate's contract. */
  list(tags: Tags, state?: string): InstanceRecord[] {
    return this.#records.all().filter((instance) => {
      const current = this.machines.stateOf(instance);
      return hasTags(instance.tags, tags) && (state === undefined ? current !== "Standby" : current === state);
    });
  }

  /** By id, name, or the beginning of an id. @throws ApiFailure */
  get(reference: string): InstanceRecord {
    const all = this.#records.all();
    const exact = this.#records.get(reference) ?? all.find(({ name }) => name === reference);
    if (exact !== undefined) return exact;
    const [found, another] = reference === "" ? [] : all.filter(({ id }) => id.startsWith(reference));
    if (found === undefined) throw notFound();
    if (another !== undefined) throw new ApiFailure(409, "ambiguous", "multiple resources match, use full ID");
    return found;
  }

  /** The instances that have a volume. */
  attachedTo(volumeId: string): { readonly instance: InstanceRecord; readonly mount: VolumeMount }[] {
    return this.#records
      .all()
      .flatMap((instance) => instance.volumes.map((mount) => ({ instance, mount })))
      .filter(({ mount }) => mount.volumeId === volumeId);
  }

  /** Makes an instance and boots it. Resolves when its machine runs; init may still be at work. @throws ApiFailure */
  async create(request: InstanceRequest): Promise<InstanceRecord> {
    try {
      return await this.#create(request);
    } catch (error) {
      throw asInternal("failed to create instance", error);
    }
  }

  async #create(request: InstanceRequest): Promise<InstanceRecord> {
    const image = this.#host.images.get(request.image);
    if (image.status !== "ready")
      throw new ApiFailure(400, "image_not_ready", `image ${image.name} is ${image.status}`);
    const command = [...(request.entrypoint ?? image.entrypoint ?? []), ...(request.cmd ?? image.cmd ?? [])];
    if (command.length === 0) throw invalidRequest("entrypoint: the image has none, and the request neither");
    const volumes = this.#mounted(request.volumes);
    return this.#make(request.name, { status: 400, code: "name_conflict" }, async (id) => {
      if (request.hypervisor !== "qemu") throw new Error(`there is no ${request.hypervisor} here, only qemu`);
      return this.#boot({
        ...request,
        volumes,
        id,
        imageName: image.name,
        imageDigest: image.digest,
        imageId: image.id,
        pinned: await this.machines.makeDisk(id, request.overlayBytes),
        ...(request.hasNetwork && { address: await this.#freeAddress(), mac: newMac() }),
        isContinued: false,
        createdAt: new Date().toISOString(),
      });
    });
  }

  /** Boots a stopped instance from its disk; a command that is given replaces the instance's own. @throws ApiFailure */
  start(instance: InstanceRecord, command: Command): Promise<InstanceRecord> {
    return this.#change(instance, "failed to start instance", async (current) => {
      this.#demand(current, "Stopped");
      return this.#boot({ ...current, ...command, isContinued: false });
    });
  }

  /** Asks the entrypoint to end, and cuts the machine off where it does not. @throws ApiFailure */
  stop(instance: InstanceRecord): Promise<InstanceRecord> {
    return this.#change(instance, "failed to stop instance", async (current) => {
      this.#demand(current, "Running", "Initializing");
      await this.machines.end(current.id, !current.skipGuestAgent);
      return this.#records.save({ ...current, stoppedAt: new Date().toISOString() });
    });
  }

  /** Ends and removes an instance; its volumes stay. */
  delete(instance: InstanceRecord, isGraceful: boolean): Promise<void> {
    return this.#change(instance, "failed to delete instance", async (current) => {
      await this.machines.end(current.id, isGraceful && !current.skipGuestAgent);
      this.#records.remove(current.id);
    });
  }

  /** Suspends a running instance to disk; its machine ends. @throws ApiFailure */
  standby(instance: InstanceRecord): Promise<InstanceRecord> {
    return this.#change(instance, "failed to standby instance", async (current) => {
      this.#demand(current, "Running", "Initializing");
      await this.machines.suspend(current);
      return current;
    });
  }

  /** Continues an instance that is on standby. @throws ApiFailure */
  restore(instance: InstanceRecord): Promise<InstanceRecord> {
    return this.#change(instance, "failed to restore instance", async (current) => {
      this.#demand(current, "Standby");
      await this.machines.continue(current);
      return current;
    });
  }

  /**
   * Runs an action on the files of an instance while nobody writes to them: a running instance is suspended before it and
   * continued afterwards, also when the action fails.
   *
   * @param failed what the error says then
   * @throws ApiFailure
   */
  suspended<T>(instance: InstanceRecord, failed: string, action: (current: InstanceRecord) => Promise<T>): Promise<T> {
    return this.#change(instance, failed, async (current) => {
      if (!this.machines.isRunning(current)) return action(current);
      await this.machines.suspend(current);
      try {
        return await action(current);
      } finally {
        await this.machines.continue(current);
      }
    });
  }

  /**
   * Makes a new instance from the files of another instance or of a snapshot, with a name, id and address of its own.
   *
   * @param files folder with disk, initramfs and perhaps memory; nobody may write to them meanwhile
   * @param target state of the fork. Default: "Running" with memory, "Stopped" without
   * @throws ApiFailure
   */
  fork(
    source: InstanceRecord,
    files: string,
    name: string,
    target: InstanceState | undefined,
  ): Promise<InstanceRecord> {
    demandForkable(source);
    return this.#make(name, { status: 409, code: "conflict" }, async (id, folder) => {
      copyInstanceFiles(files, folder);
      const { address: _address, startedAt: _startedAt, stoppedAt: _stoppedAt, ...kept } = source;
      const hasMemory = existsSync(join(folder, MEMORY));
      const fork = this.#records.save({
        ...kept,
        // The MAC address stays: the card is a part of the guest's memory.
        ...(source.hasNetwork && { address: await this.#freeAddress() }),
        id,
        name,
        isContinued: hasMemory,
        createdAt: new Date().toISOString(),
      });
      const wanted = target ?? (hasMemory ? "Running" : "Stopped");
      if (wanted === "Running" && !hasMemory) return this.#boot(fork);
      if (wanted === "Running") await this.machines.continue(fork);
      else if (wanted === "Stopped") rmSync(join(folder, MEMORY), { force: true });
      else if (!hasMemory) throw invalidRequest("target_state: the source has no memory to be on standby with");
      return fork;
    });
  }

  async #boot(record: InstanceRecord): Promise<InstanceRecord> {
    const imageId = this.machines.imageOf(record).id;
    const booted = this.#records.save({ ...record, imageId, startedAt: new Date().toISOString() });
    await this.machines.boot(booted);
    return booted;
  }

  /** The same mounts, with the volumes' ids for their names. @throws ApiFailure */
  #mounted(mounts: readonly VolumeMount[]): VolumeMount[] {
    if (mounts.length > MOST_VOLUMES) throw invalidRequest(`volumes: at most ${MOST_VOLUMES}`);
    return mounts.map((mount) => {
      const { id } = this.#host.volumes.get(mount.volumeId);
      const problem = mountProblem(mount.mountPath);
      if (problem !== undefined) throw new Error(problem);
      if (this.attachedTo(id).some((other) => !other.mount.isReadonly || !mount.isReadonly))
        throw new ApiFailure(
          409,
          "conflict",
          `volume ${id} is attached to another instance, and one of them may write`,
        );
      return { ...mount, volumeId: id };
    });
  }

  async #freeAddress(): Promise<string> {
    return freeAddress(new Set(this.#records.all().flatMap(({ address }) => address ?? [])));
  }

  #demand(instance: InstanceRecord, ...states: readonly InstanceState[]): void {
    const state = this.machines.stateOf(instance);
    if (!states.includes(state)) throw invalidState(`instance is ${state}, and has to be ${states.join(" or ")}`);
  }

  /** One change of an instance at a time: each gets the record as the one before left it. */
  #change<T>({ id }: InstanceRecord, failed: string, action: (current: InstanceRecord) => Promise<T>): Promise<T> {
    return this.#records.alone(id, async () => {
      const current = this.#records.get(id);
      if (current === undefined) throw notFound();
      try {
        return await action(current);
      } catch (error) {
        throw asInternal(failed, error);
      }
    });
  }

  /** Makes an instance under a name that is free. Where that fails, machine and folder are gone again. */
  async #make(
    name: string,
    taken: { readonly status: number; readonly code: string },
    action: (id: string, folder: string) => Promise<InstanceRecord>,
  ): Promise<InstanceRecord> {
    if (this.#takenNames.has(name) || this.#records.all().some((instance) => instance.name === name))
      throw new ApiFailure(taken.status, taken.code, `instance name '${name}' already exists`);
    this.#takenNames.add(name);
    const id = newId();
    try {
      return await action(id, this.#records.begin(id));
    } catch (error) {
      await this.machines.end(id, false);
      this.#records.remove(id);
      throw error;
    } finally {
      this.#takenNames.delete(name);
    }
  }
}
