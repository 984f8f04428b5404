import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Hypeman } from "@onkernel/hypeman";
import { Mutex } from "../../../src/agent/domain/index.ts";
import { freeAddress, newMac } from "./addresses.ts";
import { ApiFailure, insufficientResources, invalidState, notFound } from "./failure.ts";
import { copyInstanceFiles, type InstanceRecord, type InstanceState, newCid, newId } from "./instance.ts";
import type { Host, Machines } from "./machines.ts";
import { bytesOf, found, hasTags, isMountable, Records, sizeText, type Tags } from "./records.ts";
import { LIMITS_MS } from "./rules.ts";
import { MEMORY } from "./vm.ts";

const GIBIBYTE = 2 ** 30;
/** hypeman 8853445, lib/instances/create.go:188-201. */
const USUAL = { memoryBytes: GIBIBYTE, overlayBytes: 10 * GIBIBYTE, vcpus: 2 };

/** The instances of a daemon: their records, what may be done in which state, and one change of each at a time. */
export class Instances {
  readonly machines: Machines;
  readonly #records: Records<InstanceRecord>;
  readonly #host: Host;
  /** Instances are made one at a time: each sees the names, addresses and volumes that the ones before it have. */
  readonly #making = new Mutex();
  /** Memory of machines that are about to run, by id. */
  readonly #reserved = new Map<string, number>();

  /** @param machines of the same directory */
  constructor(directory: string, machines: Machines, host: Host) {
    this.#records = new Records(directory);
    this.machines = machines;
    this.#host = host;
  }

  /** Instances with these tags. Those on standby only for `state` "Standby", as in the substrate's contract. */
  list(tags: Tags, state?: string): InstanceRecord[] {
    return this.#records.all().filter((instance) => {
      const current = this.machines.stateOf(instance);
      return hasTags(instance.tags, tags) && (state === undefined ? current !== "Standby" : current === state);
    });
  }

  /** By id or name. @throws ApiFailure */
  get(reference: string): InstanceRecord {
    return found(this.#records, reference);
  }

  /** The instances that have a volume. A fork does not count (lib/instances/create.go:444 is the only caller). */
  attachedTo(volumeId: string): { readonly instance: InstanceRecord; readonly mount: Hypeman.VolumeMount }[] {
    return this.#records
      .all()
      .filter(({ own }) => own.isFork !== true)
      .flatMap((instance) => instance.volumes.map((mount) => ({ instance, mount })))
      .filter(({ mount }) => mount.volume_id === volumeId);
  }

  /** Makes an instance and boots it. Resolves when its machine runs; init may still be at work. @throws ApiFailure */
  async create(request: Hypeman.InstanceCreateParams, signal: AbortSignal): Promise<InstanceRecord> {
    const { name, entrypoint, cmd, env = {}, tags = {}, vcpus, size, overlay_size } = request;
    const image = this.#host.images.get(request.image);
    const command = { ...(entrypoint && { entrypoint }), ...(cmd && { cmd }) };
    const memoryBytes = size ? bytesOf(size) : USUAL.memoryBytes;
    const overlayBytes = overlay_size ? bytesOf(overlay_size) : USUAL.overlayBytes;
    return this.#make(name, { status: 400, code: "name_conflict" }, signal, async (id) => {
      return this.#boot({
        id,
        name,
        image: image.name,
        created_at: new Date().toISOString(),
        env,
        tags,
        network: { enabled: true, name: "default", ip: await this.#freeAddress(), mac: newMac() },
        vcpus: vcpus ?? USUAL.vcpus,
        size: sizeText(memoryBytes),
        overlay_size: sizeText(overlayBytes),
        volumes: this.#mounted(request.volumes ?? []),
        own: {
          command,
          memoryBytes,
          imageDigest: image.digest,
          imageId: image.id,
          pinned: await this.machines.makeDisk(id, overlayBytes),
          isContinued: false,
          cid: newCid(),
        },
      });
    });
  }

  /** Boots a stopped instance from its disk. @throws ApiFailure */
  start(instance: InstanceRecord): Promise<InstanceRecord> {
    return this.#change(instance, async (current) => {
      this.#requireState(current, "Stopped");
      return this.#boot({ ...current, own: { ...current.own, isContinued: false } });
    });
  }

  /** Asks the entrypoint to end, and cuts the machine off where it does not within 5 s. @throws ApiFailure */
  stop(instance: InstanceRecord): Promise<InstanceRecord> {
    return this.#change(instance, async (current) => {
      this.#requireState(current, "Running", "Initializing");
      await this.machines.end(current.id, LIMITS_MS.stop);
      return this.#records.save({ ...current, stopped_at: new Date().toISOString() });
    });
  }

  /** Ends and removes an instance in any state; its volumes stay. A running entrypoint has 2 s. */
  delete(instance: InstanceRecord): Promise<void> {
    return this.#change(instance, async (current) => {
      const state = this.machines.stateOf(current);
      const isAsked = state === "Running" || state === "Initializing";
      await this.machines.end(current.id, isAsked ? LIMITS_MS.delete : 0);
      this.#records.remove(current.id);
    });
  }

  /** Suspends a running instance to disk; its machine ends. @throws ApiFailure */
  standby(instance: InstanceRecord, signal: AbortSignal): Promise<InstanceRecord> {
    return this.#change(instance, async (current) => {
      await this.machines.suspend(current, signal);
      return current;
    });
  }

  /** Continues an instance that is on standby; one that runs is left as it is. @throws ApiFailure */
  restore(instance: InstanceRecord): Promise<InstanceRecord> {
    return this.#change(instance, async (current) => {
      // lib/instances/manager.go:590
      if (["Running", "Initializing"].includes(this.machines.stateOf(current))) return current;
      this.#requireState(current, "Standby");
      await this.#continue(current);
      return current;
    });
  }

  /**
   * Runs an action on the files of an instance while nobody writes to them. A running instance is suspended before it
   * and continued afterwards, also when the action fails. Where there is no memory for it, it stays on standby.
   *
   * @throws ApiFailure
   */
  suspended<T>(
    instance: InstanceRecord,
    signal: AbortSignal,
    action: (current: InstanceRecord) => Promise<T>,
  ): Promise<T> {
    return this.#change(instance, async (current) => {
      if (!this.machines.of(current.id).isRunning) return action(current);
      await this.machines.suspend(current, signal);
      try {
        return await action(current);
      } finally {
        await this.#continue(this.#records.get(current.id) ?? current);
      }
    });
  }

  /** Gives an instance another vsock number, as a running source gets one when forked (lib/instances/fork.go:72). */
  rotateCid({ id }: InstanceRecord): void {
    const current = this.get(id);
    this.#records.save({ ...current, own: { ...current.own, cid: newCid() } });
  }

  /**
   * Makes a new instance from the files of another instance or of a snapshot, with a name, id and address of its own.
   *
   * @param files directory with disk, initramfs and perhaps memory; nobody may write to them meanwhile
   * @param taken code of the answer where the name is taken
   * @throws ApiFailure
   */
  fork(
    source: InstanceRecord,
    files: string,
    { name, taken }: { readonly name: string; readonly taken: string },
    signal: AbortSignal,
  ): Promise<InstanceRecord> {
    return this.#make(name, { status: 409, code: taken }, signal, async (id, directory) => {
      copyInstanceFiles(files, directory);
      const { started_at: _startedAt, stopped_at: _stoppedAt, network, own, ...kept } = source;
      const hasMemory = existsSync(join(directory, MEMORY));
      const fork = this.#records.save({
        ...kept,
        id,
        name,
        created_at: new Date().toISOString(),
        // The MAC address stays: the card is a part of the guest's memory.
        network: { ...network, ip: await this.#freeAddress() },
        own: { ...own, isContinued: hasMemory, isFork: true, cid: hasMemory ? (own.cid ?? newCid()) : newCid() },
      });
      if (!hasMemory) return this.#boot(fork);
      await this.#continue(fork);
      return fork;
    });
  }

  async #boot(record: InstanceRecord): Promise<InstanceRecord> {
    const imageId = this.machines.imageOf(record).id;
    const own = { ...record.own, imageId };
    const booted = this.#records.save({ ...record, own, started_at: new Date().toISOString() });
    await this.#admitted(booted, () => this.machines.boot(booted));
    return booted;
  }

  #continue(record: InstanceRecord): Promise<void> {
    return this.#admitted(record, () => this.machines.continue(record));
  }

  /** Has a machine run if there is memory for it, and no other one with its vsock number. @throws ApiFailure */
  async #admitted({ id, own }: InstanceRecord, run: () => Promise<void>): Promise<void> {
    const { memoryBytes, forks } = this.#host.rules;
    const others = this.#records.all().filter((other) => other.id !== id && this.machines.of(other.id).isRunning);
    if (forks === "qemu" && others.some((other) => own.cid !== undefined && other.own.cid === own.cid))
      throw new Error(`vhost-vsock: unable to set guest cid: Address already in use (${own.cid})`);
    const running = new Map([...others.map((other) => [other.id, other.own.memoryBytes] as const), ...this.#reserved]);
    running.delete(id);
    const usedBytes = [...running.values()].reduce((sum, bytes) => sum + bytes, 0);
    if (memoryBytes !== undefined && usedBytes + own.memoryBytes > memoryBytes)
      throw insufficientResources(
        `${sizeText(own.memoryBytes)} of memory, and ${usedBytes} of ${memoryBytes} bytes are used`,
      );
    this.#reserved.set(id, own.memoryBytes);
    try {
      await run();
    } finally {
      this.#reserved.delete(id);
    }
  }

  /** The mounts in the API's form, with the volumes' ids for their names. @throws ApiFailure */
  #mounted(mounts: readonly Hypeman.VolumeMount[]): Hypeman.VolumeMount[] {
    return mounts.map(({ volume_id, mount_path, readonly = false, overlay = false, overlay_size }) => {
      // Not there, or not to be had: internal errors both (lib/instances/create.go:437-451).
      if (!this.#host.volumes.has(volume_id)) throw new Error(`volume ${volume_id}: not found`);
      if (!isMountable(mount_path)) throw new Error(`mount_path ${mount_path} is reserved`);
      const { id } = this.#host.volumes.get(volume_id);
      if (this.attachedTo(id).some(({ mount }) => mount.readonly !== true || !readonly))
        throw new Error(`volume ${id} is attached to another instance, and one of them may write`);
      return { volume_id: id, mount_path, readonly, ...(overlay && overlay_size && { overlay, overlay_size }) };
    });
  }

  async #freeAddress(): Promise<string> {
    return freeAddress(new Set(this.#records.all().flatMap(({ network }) => network.ip ?? [])));
  }

  #requireState(instance: InstanceRecord, ...states: readonly InstanceState[]): void {
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

  /** Makes an instance under a name that is free. Where that fails, machine and directory are gone again. */
  #make(
    name: string,
    taken: { readonly status: number; readonly code: string },
    signal: AbortSignal,
    action: (id: string, directory: string) => Promise<InstanceRecord>,
  ): Promise<InstanceRecord> {
    return this.#making.run(async () => {
      if (this.#records.all().some((instance) => instance.name === name))
        throw new ApiFailure(taken.status, taken.code, `instance name '${name}' already exists`);
      const id = newId();
      try {
        const made = await action(id, this.#records.begin(id));
        signal.throwIfAborted();
        return made;
      } catch (error) {
        await this.machines.end(id, 0);
        this.#records.remove(id);
        throw error;
      }
    });
  }
}
