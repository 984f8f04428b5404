import { randomBytes } from "node:crypto";
import { existsSync, renameSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { copyDisk } from "../../test/vm/harness/disks.ts";
import type { QemuOptions } from "../../test/vm/harness/qemu.ts";
import { AGENT_PORT, freeAddress, newMac } from "./addresses.ts";
import { ApiFailure, internalError, invalidRequest, invalidState, notFound } from "./failure.ts";
import { type GuestParts, MOST_VOLUMES } from "./guest.ts";
import type { Images } from "./images.ts";
import { Locks } from "./locks.ts";
import { hasTags, mountProblem, type Tags } from "./parameters.ts";
import { RECORD, Records } from "./records.ts";
import { clearConsole, consoleWords, MEMORY, Vm } from "./vm.ts";
import type { Volumes } from "./volumes.ts";

const DISK = "disk";
const INITRAMFS = "initramfs";
const MEBIBYTE = 2 ** 20;
/** What the agent gives its workload, and more: the guest may be emulated, on a machine with much else to do. */
const STOP_LIMIT_MS = 60_000;
/** How long a standby waits for init to start the entrypoint. */
const START_LIMIT_MS = 120_000;

/** What an instance has of a volume. */
export interface VolumeMount {
  readonly volumeId: string;
  readonly mountPath: string;
  readonly isReadonly: boolean;
  readonly overlaySize?: string;
}

/** What an instance is made with. */
export interface InstanceRequest {
  readonly name: string;
  readonly image: string;
  readonly hypervisor: string;
  readonly env: Readonly<Record<string, string>>;
  readonly entrypoint?: readonly string[];
  readonly cmd?: readonly string[];
  readonly tags: Tags;
  readonly volumes: readonly VolumeMount[];
  readonly memoryBytes: number;
  readonly overlayBytes: number;
  readonly vcpus: number;
  readonly hasNetwork: boolean;
  readonly skipGuestAgent: boolean;
}

/** An instance as it is kept. Its state is not: that shows in its folder and in its process. */
export interface InstanceRecord extends InstanceRequest {
  readonly id: string;
  /** As the API tells it. */
  readonly imageName: string;
  readonly imageDigest: string;
  /** The very disk that its memory refers to. */
  readonly imageId: string;
  /** Version of QEMU, kernel and accelerator that it was booted with. A continued guest needs the same. */
  readonly pinned: { readonly version: string; readonly kernelImage: string; readonly accelerator: string };
  readonly address?: string;
  readonly mac?: string;
  /** It goes on from another one's memory, in which the entrypoint had started: its console does not say so. */
  readonly isContinued: boolean;
  readonly createdAt: string;
  readonly startedAt?: string;
  readonly stoppedAt?: string;
}

export type InstanceState = "Initializing" | "Running" | "Standby" | "Stopped";

/** What instances are made of and run on. */
export interface InstanceParts {
  readonly images: Images;
  readonly volumes: Volumes;
  /** Version of the hypervisor on this host. */
  readonly version: string;
  /** Kernel and init, which are got when the first guest needs them. */
  readonly guest: () => Promise<GuestParts>;
  readonly log: (line: string) => void;
}

/** The instances of a daemon. Their machines go on without it. */
export class Instances {
  readonly #records: Records<InstanceRecord>;
  readonly #vms: Map<string, Vm>;
  readonly #parts: InstanceParts;
  readonly #locks = new Locks();
  /** Names and addresses that are being given out. */
  readonly #taken = new Set<string>();

  private constructor(records: Records<InstanceRecord>, vms: Map<string, Vm>, parts: InstanceParts) {
    this.#records = records;
    this.#vms = vms;
    this.#parts = parts;
  }

  /** Opens the instances of a folder, and adopts those that run; machines that are in no record are ended. */
  static async open(folder: string, parts: InstanceParts): Promise<Instances> {
    const vms = Vm.running(folder);
    for (const [id, vm] of vms)
      if (existsSync(join(folder, id, RECORD))) {
        await vm.settle();
        parts.log(`instance ${id} is adopted`);
      } else {
        await vm.kill();
        vms.delete(id);
      }
    return new Instances(new Records(folder), vms, parts);
  }

  /** Ends all machines of a folder. */
  static async endAll(folder: string): Promise<number> {
    const vms = Vm.running(folder);
    await Promise.all([...vms.values()].map((vm) => vm.kill()));
    return vms.size;
  }

  get runningCount(): number {
    return this.#records.all().filter((instance) => this.#vmOf(instance) !== undefined).length;
  }

  /** As the contract has it: those on standby only where they are asked for. */
  list(tags: Tags, state?: string): InstanceRecord[] {
    const wanted = (instance: InstanceRecord): boolean =>
      state === undefined ? this.stateOf(instance) !== "Standby" : this.stateOf(instance) === state;
    return this.#records.all().filter((instance) => hasTags(instance.tags, tags) && wanted(instance));
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

  stateOf(instance: InstanceRecord): InstanceState {
    if (this.#vmOf(instance) !== undefined)
      return instance.isContinued || this.wordsOf(instance).entrypointStarted ? "Running" : "Initializing";
    return this.hasMemory(instance) ? "Standby" : "Stopped";
  }

  hasMemory({ id }: InstanceRecord): boolean {
    return existsSync(join(this.folderOf(id), MEMORY));
  }

  wordsOf({ id }: InstanceRecord): ReturnType<typeof consoleWords> {
    return consoleWords(this.folderOf(id));
  }

  folderOf(id: string): string {
    return this.#records.folderOf(id);
  }

  /** Makes an instance and boots it. Resolves when its machine runs; init may still be at work. @throws ApiFailure */
  async create(request: InstanceRequest): Promise<InstanceRecord> {
    try {
      return await this.#create(request);
    } catch (error) {
      throw asInternal("failed to create instance", error, this.#parts.log);
    }
  }

  #create(request: InstanceRequest): Promise<InstanceRecord> {
    const image = this.#parts.images.get(request.image);
    if (image.status !== "ready")
      throw new ApiFailure(400, "image_not_ready", `image ${image.name} is ${image.status}`);
    const command = [...(request.entrypoint ?? image.entrypoint ?? []), ...(request.cmd ?? image.cmd ?? [])];
    if (command.length === 0) throw invalidRequest("entrypoint: the image has none, and the request neither");
    const volumes = this.#mounted(request.volumes);
    return this.#named(request.name, "name_conflict", 400, async () => {
      if (request.hypervisor !== "qemu") throw new Error(`there is no ${request.hypervisor} here, only qemu`);
      const guest = await this.#parts.guest();
      const id = newId();
      const folder = this.#records.begin(id);
      try {
        guest.writeInstanceDisk(join(folder, DISK), request.overlayBytes);
        const { kernel, accelerator } = guest;
        const record: InstanceRecord = {
          ...request,
          volumes,
          id,
          imageName: image.name,
          imageDigest: image.digest,
          imageId: image.id,
          pinned: { version: this.#parts.version, kernelImage: kernel.image, accelerator: accelerator.name },
          ...(await this.#network(request.hasNetwork)),
          isContinued: false,
          createdAt: new Date().toISOString(),
        };
        return await this.#boot(record, guest);
      } catch (error) {
        await this.#discard(id);
        throw error;
      }
    });
  }

  /** Boots a stopped instance from its disk, with another command where one is given. @throws ApiFailure */
  start(instance: InstanceRecord, command: Pick<InstanceRequest, "entrypoint" | "cmd">): Promise<InstanceRecord> {
    return this.#change(instance, "failed to start instance", async (current) => {
      this.#demand(current, "Stopped");
      return this.#boot({ ...current, ...command, isContinued: false }, await this.#parts.guest());
    });
  }

  /** Asks the entrypoint to end, and cuts the machine off where it does not. @throws ApiFailure */
  stop(instance: InstanceRecord): Promise<InstanceRecord> {
    return this.#change(instance, "failed to stop instance", async (current) => {
      this.#demand(current, "Running", "Initializing");
      await this.#end(current, true);
      return this.#records.save({ ...current, stoppedAt: new Date().toISOString() });
    });
  }

  /** Ends and removes an instance; its volumes stay. */
  async delete(instance: InstanceRecord, isGraceful: boolean): Promise<void> {
    await this.#change(instance, "failed to delete instance", async (current) => {
      await this.#end(current, isGraceful);
      this.#records.remove(current.id);
      return current;
    });
  }

  /** Pauses a running instance to disk; its machine ends. @throws ApiFailure */
  standby(instance: InstanceRecord): Promise<InstanceRecord> {
    return this.#change(instance, "failed to standby instance", async (current) => {
      this.#demand(current, "Running", "Initializing");
      await this.#suspend(current);
      return current;
    });
  }

  /** Continues an instance that is on standby. @throws ApiFailure */
  restore(instance: InstanceRecord): Promise<InstanceRecord> {
    return this.#change(instance, "failed to restore instance", async (current) => {
      this.#demand(current, "Standby");
      return this.#continue(current);
    });
  }

  /**
   * Has something done with the files of an instance while nobody writes to them: a running one is put on standby for it and
   * restored afterwards, whatever came of it. @throws ApiFailure
   */
  suspended<T>(instance: InstanceRecord, failed: string, action: (current: InstanceRecord) => Promise<T>): Promise<T> {
    return this.#change(instance, failed, async (current) => {
      if (this.#vmOf(current) === undefined) return action(current);
      await this.#suspend(current);
      try {
        return await action(current);
      } finally {
        await this.#continue(current);
      }
    });
  }

  /**
   * Makes a new instance of the files of another one or of a snapshot: everything is that one's but name, id and address.
   *
   * @param files folder with disk, initramfs and perhaps memory, to which nobody writes meanwhile
   * @throws ApiFailure
   */
  fork(
    source: InstanceRecord,
    files: string,
    name: string,
    target: InstanceState | undefined,
  ): Promise<InstanceRecord> {
    demandForkable(source);
    return this.#named(name, "conflict", 409, async () => {
      const id = newId();
      const folder = this.#records.begin(id);
      try {
        copyInstanceFiles(files, folder);
        const { address: _address, startedAt: _startedAt, stoppedAt: _stoppedAt, ...kept } = source;
        const network = await this.#network(source.hasNetwork);
        const hasMemory = existsSync(join(folder, MEMORY));
        const fork = this.#records.save({
          ...kept,
          // The guest keeps the card that is in its memory.
          ...(network.address !== undefined && { address: network.address }),
          id,
          name,
          isContinued: hasMemory,
          createdAt: new Date().toISOString(),
        });
        return await this.#brought(fork, target ?? (hasMemory ? "Running" : "Stopped"));
      } catch (error) {
        await this.#discard(id);
        throw error;
      }
    });
  }

  /** Brings a new fork into the state that it is wanted in. */
  async #brought(fork: InstanceRecord, target: InstanceState): Promise<InstanceRecord> {
    const hasMemory = this.hasMemory(fork);
    if (target === "Running") return hasMemory ? this.#continue(fork) : this.#boot(fork, await this.#parts.guest());
    if (target === "Stopped") rmSync(join(this.folderOf(fork.id), MEMORY), { force: true });
    else if (!hasMemory) throw invalidRequest("target_state: the source has no memory to be on standby with");
    return fork;
  }

  async #boot(record: InstanceRecord, guest: GuestParts): Promise<InstanceRecord> {
    const folder = this.folderOf(record.id);
    const { images } = this.#parts;
    const image = images.byId(record.imageId) ?? images.byDigest(record.imageDigest);
    if (image === undefined) throw new Error(`its image ${record.imageName} is gone`);
    guest.writeInitramfs(join(folder, INITRAMFS), {
      env: { ...image.env, ...record.env },
      command: [...(record.entrypoint ?? image.entrypoint ?? []), ...(record.cmd ?? image.cmd ?? [])],
      workingDirectory: image.working_dir ?? "/",
      volumes: record.volumes.map(({ mountPath, isReadonly, overlaySize }) => ({
        mountPath,
        mode: overlaySize !== undefined ? "overlay" : isReadonly ? "ro" : "rw",
      })),
      skipGuestAgent: record.skipGuestAgent,
    });
    clearConsole(folder);
    const booted = this.#records.save({ ...record, imageId: image.id, startedAt: new Date().toISOString() });
    this.#vms.set(record.id, await Vm.start(folder, this.#machine(booted)));
    return booted;
  }

  async #continue(record: InstanceRecord): Promise<InstanceRecord> {
    const { id, imageId, imageName, pinned } = record;
    if (this.#parts.images.byId(imageId) === undefined) throw new Error(`its image ${imageName} is gone`);
    if (pinned.version !== this.#parts.version)
      throw new Error(`it needs ${pinned.version}, and this host has ${this.#parts.version}`);
    const folder = this.folderOf(id);
    this.#vms.set(id, await Vm.start(folder, { ...this.#machine(record), incoming: MEMORY }));
    rmSync(join(folder, MEMORY));
    return record;
  }

  async #suspend(record: InstanceRecord): Promise<void> {
    if (record.skipGuestAgent) throw new Error("it has no guest agent (skip_guest_agent): standby waits for that");
    const deadline = performance.now() + START_LIMIT_MS;
    while (this.stateOf(record) === "Initializing") {
      if (performance.now() > deadline) throw new Error("its guest agent is not ready");
      await pause(50);
    }
    const vm = this.#vmOf(record);
    if (vm === undefined) throw invalidState(`cannot standby from state ${this.stateOf(record)}`);
    await vm.standby();
  }

  async #end(record: InstanceRecord, isGraceful: boolean): Promise<void> {
    const vm = this.#vmOf(record);
    if (vm === undefined) return;
    const canAsk = isGraceful && !record.skipGuestAgent;
    if (!canAsk || !(await vm.stop(STOP_LIMIT_MS))) await vm.kill();
  }

  #machine(record: InstanceRecord): QemuOptions {
    const { images, volumes } = this.#parts;
    const image = images.byId(record.imageId);
    if (image === undefined) throw new Error(`its image ${record.imageName} is gone`);
    const { pinned, address, mac, memoryBytes, vcpus } = record;
    return {
      kernelImage: pinned.kernelImage,
      initramfs: INITRAMFS,
      disks: [
        { file: DISK, isReadonly: false },
        { file: images.diskOf(image), isReadonly: true },
        ...record.volumes.map(({ volumeId, isReadonly }) => ({ file: volumes.diskOf({ id: volumeId }), isReadonly })),
      ],
      forwards: address === undefined ? [] : [{ address, port: AGENT_PORT, guestPort: AGENT_PORT }],
      accelerator: pinned.accelerator,
      memoryMib: Math.ceil(memoryBytes / MEBIBYTE),
      processors: vcpus,
      ...(mac !== undefined && { mac }),
      consoleInput: true,
    };
  }

  /** The same mounts, with the volumes' ids. @throws ApiFailure */
  #mounted(mounts: readonly VolumeMount[]): VolumeMount[] {
    if (mounts.length > MOST_VOLUMES) throw invalidRequest(`volumes: at most ${MOST_VOLUMES}`);
    return mounts.map((mount) => {
      const { id } = this.#parts.volumes.get(mount.volumeId);
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

  async #network(isEnabled: boolean): Promise<{ readonly address?: string; readonly mac?: string }> {
    if (!isEnabled) return {};
    const taken = new Set(this.#records.all().flatMap(({ address }) => address ?? []));
    const address = await freeAddress(taken.union(this.#taken));
    return { address, mac: newMac() };
  }

  #vmOf({ id }: InstanceRecord): Vm | undefined {
    const vm = this.#vms.get(id);
    if (vm?.isRunning === true) return vm;
    this.#vms.delete(id);
    return undefined;
  }

  #demand(instance: InstanceRecord, ...states: readonly InstanceState[]): void {
    const state = this.stateOf(instance);
    if (!states.includes(state)) throw invalidState(`instance is ${state}, and has to be ${states.join(" or ")}`);
  }

  /** One change of an instance at a time; each sees what the one before has left. */
  #change<T>({ id }: InstanceRecord, failed: string, action: (current: InstanceRecord) => Promise<T>): Promise<T> {
    return this.#locks.run(id, async () => {
      const current = this.#records.get(id);
      if (current === undefined) throw notFound();
      try {
        return await action(current);
      } catch (error) {
        throw asInternal(failed, error, (line) => this.#parts.log(`${id}: ${line}`));
      }
    });
  }

  async #named<T>(name: string, code: string, status: number, action: () => Promise<T>): Promise<T> {
    if (this.#taken.has(name) || this.#records.all().some((instance) => instance.name === name))
      throw new ApiFailure(status, code, `instance name '${name}' already exists`);
    this.#taken.add(name);
    try {
      return await action();
    } finally {
      this.#taken.delete(name);
    }
  }

  async #discard(id: string): Promise<void> {
    await this.#vms.get(id)?.kill();
    this.#vms.delete(id);
    this.#records.remove(id);
  }
}

/** Refuses to fork what writes to a volume: two guests would write to it. @throws ApiFailure */
export function demandForkable({ volumes }: InstanceRecord): void {
  const writable = volumes.find(({ isReadonly }) => !isReadonly);
  if (writable === undefined) return;
  const where = `volume "${writable.volumeId}" mounted at "${writable.mountPath}"`;
  throw new ApiFailure(501, "not_supported", `cannot fork instance with writable ${where}; use readonly+overlay`);
}

/** Copies what an instance goes on from, into the folder of a snapshot or of another instance; returns its size in bytes. */
export function copyInstanceFiles(from: string, to: string): number {
  let sizeBytes = 0;
  for (const name of [INITRAMFS, DISK, MEMORY].filter((each) => existsSync(join(from, each)))) {
    copyDisk(join(from, name), join(to, `${name}.new`));
    renameSync(join(to, `${name}.new`), join(to, name));
    sizeBytes += statSync(join(to, name)).blocks * 512;
  }
  return sizeBytes;
}

/** An id that no other thing has. */
export function newId(): string {
  return randomBytes(8).toString("hex");
}

/** What is no refusal becomes the error that says nothing; the log has the cause. */
export function asInternal(message: string, error: unknown, log: (line: string) => void): ApiFailure {
  if (error instanceof ApiFailure) return error;
  log(`${message}: ${error instanceof Error ? error.message : String(error)}`);
  return internalError(message, error);
}
