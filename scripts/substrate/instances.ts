import { existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Hypeman } from "@onkernel/hypeman";
import { Mutex } from "../../src/domain/index.ts";
import { freeAddress, newMac } from "./addresses.ts";
import { ApiFailure, invalidRequest, invalidState, notFound } from "./failure.ts";
import { commandOf, MOST_VOLUMES } from "./guest.ts";
import { copyInstanceFiles, demandForkable, type InstanceRecord, type InstanceState, newId } from "./instance.ts";
import { type Host, Machines } from "./machines.ts";
import { Records } from "./records.ts";
import { bytesOf, type Command, hasTags, mountProblem, sizeText, type Tags } from "./requests.ts";
import { MEMORY } from "./vm.ts";

const GIBIBYTE = 2 ** 30;
/** Enough for the agent and a small workload. */
const USUAL = { memoryBytes: 0.75 * GIBIBYTE, overlayBytes: GIBIBYTE };

/** The instances of a daemon: their records, what may be done in which state, and one change of each at a time. */
export class Instances {
  readonly machines: Machines;
  readonly #records: Records<InstanceRecord>;
  readonly #host: Host;
  /** Instances are made one at a time: each sees the names, addresses and volumes that the ones before it have. */
  readonly #making = new Mutex();

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
    return this.#records.all().filter(({ id }) => this.machines.of(id).isRunning).length;
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
  attachedTo(volumeId: string): { readonly instance: InstanceRecord; readonly mount: Hypeman.VolumeMount }[] {
    return this.#records
      .all()
      .flatMap((instance) => instance.volumes.map((mount) => ({ instance, mount })))
      .filter(({ mount }) => mount.volume_id === volumeId);
  }

  /** Makes an instance and boots it. Resolves when its machine runs; init may still be at work. @throws ApiFailure */
  async create(request: Hypeman.InstanceCreateParams): Promise<InstanceRecord> {
    const { name, entrypoint, cmd, env, tags, vcpus, size, overlay_size, network, hypervisor = "qemu" } = request;
    const image = this.#host.images.get(request.image);
    if (image.status !== "ready")
      throw new ApiFailure(400, "image_not_ready", `image ${image.name} is ${image.status}`);
    const command = { ...(entrypoint && { entrypoint }), ...(cmd && { cmd }) };
    if (commandOf(command, image).length === 0)
      throw invalidRequest("entrypoint: the image has none, and the request neither");
    const memoryBytes = size ? bytesOf(size) : USUAL.memoryBytes;
    const overlayBytes = overlay_size ? bytesOf(overlay_size) : USUAL.overlayBytes;
    return this.#make(name, { status: 400, code: "name_conflict" }, async (id) => {
      if (hypervisor !== "qemu") throw new Error(`there is no ${hypervisor} here, only qemu`);
      return this.#boot({
        id,
        name,
        image: image.name,
        created_at: new Date().toISOString(),
        env: env ?? {},
        tags: tags ?? {},
        network:
          network?.enabled === false
            ? { enabled: false, ip: null, mac: null }
            : { enabled: true, name: "default", ip: await this.#freeAddress(), mac: newMac() },
        vcpus: vcpus ?? 1,
        size: sizeText(memoryBytes),
        overlay_size: sizeText(overlayBytes),
        volumes: this.#mounted(request.volumes ?? []),
        own: {
          command,
          memoryBytes,
          skipGuestAgent: request.skip_guest_agent ?? false,
          imageDigest: image.digest,
          imageId: image.id,
          pinned: await this.machines.makeDisk(id, overlayBytes),
          isContinued: false,
        },
      });
    });
  }

  /** Boots a stopped instance from its disk; a command that is given replaces the instance's own. @throws ApiFailure */
  start(instance: InstanceRecord, { entrypoint, cmd }: Command): Promise<InstanceRecord> {
    return this.#change(instance, async (current) => {
      this.#demand(current, "Stopped");
      const command = { ...current.own.command, ...(entrypoint && { entrypoint }), ...(cmd && { cmd }) };
      return this.#boot({ ...current, own: { ...current.own, command, isContinued: false } });
    });
  }

  /** Asks the entrypoint to end, and cuts the machine off where it does not. @throws ApiFailure */
  stop(instance: InstanceRecord): Promise<InstanceRecord> {
    return this.#change(instance, async (current) => {
      this.#demand(current, "Running", "Initializing");
      await this.machines.end(current.id, !current.own.skipGuestAgent);
      return this.#records.save({ ...current, stopped_at: new Date().toISOString() });
    });
  }

  /** Ends and removes an instance; its volumes stay. */
  delete(instance: InstanceRecord, isGraceful: boolean): Promise<void> {
    return this.#change(instance, async (current) => {
      await this.machines.end(current.id, isGraceful && !current.own.skipGuestAgent);
      this.#records.remove(current.id);
    });
  }

  /** Suspends a running instance to disk; its machine ends. @throws ApiFailure */
  standby(instance: InstanceRecord): Promise<InstanceRecord> {
    return this.#change(instance, async (current) => {
      this.#demand(current, "Running", "Initializing");
      await this.machines.suspend(current);
      return current;
    });
  }

  /** Continues an instance that is on standby. @throws ApiFailure */
  restore(instance: InstanceRecord): Promise<InstanceRecord> {
    return this.#change(instance, async (current) => {
      this.#demand(current, "Standby");
      await this.machines.continue(current);
      return current;
    });
  }

  /**
   * Runs an action on the files of an instance while nobody writes to them: a running instance is suspended before it and
   * continued afterwards, also when the action fails. @throws ApiFailure
   */
  suspended<T>(instance: InstanceRecord, action: (current: InstanceRecord) => Promise<T>): Promise<T> {
    return this.#change(instance, async (current) => {
      if (!this.machines.of(current.id).isRunning) return action(current);
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
      const { started_at: _startedAt, stopped_at: _stoppedAt, network, own, ...kept } = source;
      const hasMemory = existsSync(join(folder, MEMORY));
      const fork = this.#records.save({
        ...kept,
        id,
        name,
        created_at: new Date().toISOString(),
        // The MAC address stays: the card is a part of the guest's memory.
        network: network.enabled === true ? { ...network, ip: await this.#freeAddress() } : network,
        own: { ...own, isContinued: hasMemory },
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
    const own = { ...record.own, imageId };
    const booted = this.#records.save({ ...record, own, started_at: new Date().toISOString() });
    await this.machines.boot(booted);
    return booted;
  }

  /** The mounts as the API tells them, with the volumes' ids for their names. @throws ApiFailure */
  #mounted(mounts: readonly Hypeman.VolumeMount[]): Hypeman.VolumeMount[] {
    if (mounts.length > MOST_VOLUMES) throw invalidRequest(`volumes: at most ${MOST_VOLUMES}`);
    return mounts.map(({ volume_id, mount_path, readonly = false, overlay = false, overlay_size }) => {
      const { id } = this.#host.volumes.get(volume_id);
      const problem = mountProblem(mount_path);
      if (problem !== undefined) throw new Error(problem);
      if (this.attachedTo(id).some(({ mount }) => mount.readonly !== true || !readonly))
        throw new ApiFailure(
          409,
          "conflict",
          `volume ${id} is attached to another instance, and one of them may write`,
        );
      return { volume_id: id, mount_path, readonly, ...(overlay && overlay_size && { overlay, overlay_size }) };
    });
  }

  async #freeAddress(): Promise<string> {
    return freeAddress(new Set(this.#records.all().flatMap(({ network }) => network.ip ?? [])));
  }

  #demand(instance: InstanceRecord, ...states: readonly InstanceState[]): void {
    const state = this.machines.stateOf(instance);
    if (!states.includes(state)) throw invalidState(`instance is ${state}, and has to be ${states.join(" or ")}`);
  }

  /** One change of an instance at a time: each gets the record as the one before left it. */
  #change<T>({ id }: InstanceRecord, action: (current: InstanceRecord) => Promise<T>): Promise<T> {
    return this.#records.alone(id, () => {
      const current = this.#records.get(id);
      if (current === undefined) throw notFound();
      return action(current);
    });
  }

  /** Makes an instance under a name that is free. Where that fails, machine and folder are gone again. */
  #make(
    name: string,
    taken: { readonly status: number; readonly code: string },
    action: (id: string, folder: string) => Promise<InstanceRecord>,
  ): Promise<InstanceRecord> {
    return this.#making.run(async () => {
      if (this.#records.all().some((instance) => instance.name === name))
        throw new ApiFailure(taken.status, taken.code, `instance name '${name}' already exists`);
      const id = newId();
      try {
        return await action(id, this.#records.begin(id));
      } catch (error) {
        await this.machines.end(id, false);
        this.#records.remove(id);
        throw error;
      }
    });
  }
}
