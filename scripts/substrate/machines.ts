import { existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import type { QemuOptions } from "../../test/vm/harness/qemu.ts";
import { AGENT_PORT } from "./addresses.ts";
import { invalidState } from "./failure.ts";
import type { GuestParts } from "./guest.ts";
import type { ImageRecord, Images } from "./images.ts";
import { DISK, INITRAMFS, type InstanceRecord, type InstanceState } from "./instance.ts";
import { RECORD } from "./records.ts";
import { clearConsole, type ConsoleWords, consoleWords, MEMORY, Vm } from "./vm.ts";
import type { Volumes } from "./volumes.ts";

const MEBIBYTE = 2 ** 20;
/** Longer than the agent's grace for its workload: an emulated guest on a busy machine is slow. */
const STOP_LIMIT_MS = 60_000;
/** How long a standby waits for init to start the entrypoint. */
const START_LIMIT_MS = 120_000;

/** What machines run on. */
export interface Host {
  readonly images: Images;
  readonly volumes: Volumes;
  /** Version of the hypervisor on this host. */
  readonly version: string;
  /** Gets kernel and init, at the first guest that needs them. */
  readonly guest: () => Promise<GuestParts>;
  readonly log: (line: string) => void;
}

/** The machines of a daemon's instances: boots, suspends, continues and ends them. They outlive the daemon. */
export class Machines {
  readonly #folder: string;
  readonly #host: Host;
  readonly #vms: Map<string, Vm>;

  private constructor(folder: string, host: Host, vms: Map<string, Vm>) {
    this.#folder = folder;
    this.#host = host;
    this.#vms = vms;
  }

  /** Adopts the machines of a folder of instances, and ends those of which there is no record. */
  static async open(folder: string, host: Host): Promise<Machines> {
    const vms = Vm.running(folder);
    for (const [id, vm] of vms)
      if (existsSync(join(folder, id, RECORD))) {
        await vm.settle();
        host.log(`instance ${id} is adopted`);
      } else {
        await vm.kill();
        vms.delete(id);
      }
    return new Machines(folder, host, vms);
  }

  /** Ends all machines of a folder of instances; returns how many there were. */
  static async endAll(folder: string): Promise<number> {
    const vms = Vm.running(folder);
    await Promise.all([...vms.values()].map((vm) => vm.kill()));
    return vms.size;
  }

  stateOf(instance: InstanceRecord): InstanceState {
    if (this.isRunning(instance))
      return instance.isContinued || this.wordsOf(instance).entrypointStarted ? "Running" : "Initializing";
    return this.hasMemory(instance) ? "Standby" : "Stopped";
  }

  isRunning({ id }: InstanceRecord): boolean {
    return this.#running(id) !== undefined;
  }

  hasMemory({ id }: InstanceRecord): boolean {
    return existsSync(join(this.folderOf(id), MEMORY));
  }

  /** What init has said since the last boot. */
  wordsOf({ id }: InstanceRecord): ConsoleWords {
    return consoleWords(this.folderOf(id));
  }

  /** The folder that an instance's machine runs in. */
  folderOf(id: string): string {
    return join(this.#folder, id);
  }

  /** Makes the disk of a new instance; returns what the instance is pinned to from now on. */
  async makeDisk(id: string, overlayBytes: number): Promise<InstanceRecord["pinned"]> {
    const guest = await this.#host.guest();
    guest.writeInstanceDisk(join(this.folderOf(id), DISK), overlayBytes);
    const { kernel, accelerator } = guest;
    return { version: this.#host.version, kernelImage: kernel.image, accelerator: accelerator.name };
  }

  /** The image to boot an instance from: its own, or where that was removed another of the same content. */
  imageOf({ imageId, imageDigest, imageName }: InstanceRecord): ImageRecord {
    const image = this.#host.images.byId(imageId) ?? this.#host.images.byDigest(imageDigest);
    if (image === undefined) throw new Error(`its image ${imageName} is gone`);
    return image;
  }

  /** Boots an instance from its disk. Resolves when its machine runs; init may still be at work. */
  async boot(record: InstanceRecord): Promise<void> {
    const guest = await this.#host.guest();
    const image = this.imageOf(record);
    const folder = this.folderOf(record.id);
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
    this.#vms.set(record.id, await Vm.start(folder, this.#options(record)));
  }

  /** Continues an instance from its memory, which is used up by that. */
  async continue(record: InstanceRecord): Promise<void> {
    const { id, pinned } = record;
    const options = this.#options(record);
    if (pinned.version !== this.#host.version)
      throw new Error(`it needs ${pinned.version}, and this host has ${this.#host.version}`);
    const folder = this.folderOf(id);
    this.#vms.set(id, await Vm.start(folder, { ...options, incoming: MEMORY }));
    rmSync(join(folder, MEMORY));
  }

  /** Writes a running guest's memory into its folder, and ends the machine. Where that fails, the guest goes on. */
  async suspend(record: InstanceRecord): Promise<void> {
    if (record.skipGuestAgent) throw new Error("it has no guest agent (skip_guest_agent): standby waits for that");
    const deadline = performance.now() + START_LIMIT_MS;
    while (this.stateOf(record) === "Initializing") {
      if (performance.now() > deadline) throw new Error("its guest agent is not ready");
      await pause(50);
    }
    const vm = this.#running(record.id);
    if (vm === undefined) throw invalidState(`cannot standby from state ${this.stateOf(record)}`);
    await vm.standby();
  }

  /** Ends a machine, where there is one. With `isGraceful` init first has a minute to stop the entrypoint. */
  async end(id: string, isGraceful: boolean): Promise<void> {
    const vm = this.#running(id);
    if (vm !== undefined && !(isGraceful && (await vm.stop(STOP_LIMIT_MS)))) await vm.kill();
    this.#vms.delete(id);
  }

  #running(id: string): Vm | undefined {
    const vm = this.#vms.get(id);
    if (vm?.isRunning === true) return vm;
    this.#vms.delete(id);
    return undefined;
  }

  #options({ imageId, imageName, volumes, pinned, address, mac, memoryBytes, vcpus }: InstanceRecord): QemuOptions {
    const image = this.#host.images.byId(imageId);
    if (image === undefined) throw new Error(`its image ${imageName} is gone`);
    const volumeDisks = volumes.map(({ volumeId, isReadonly }) => ({
      file: this.#host.volumes.diskOf({ id: volumeId }),
      isReadonly,
    }));
    return {
      kernelImage: pinned.kernelImage,
      initramfs: INITRAMFS,
      disks: [
        { file: DISK, isReadonly: false },
        { file: this.#host.images.diskOf(image), isReadonly: true },
        ...volumeDisks,
      ],
      forwards: address === undefined ? [] : [{ address, port: AGENT_PORT, guestPort: AGENT_PORT }],
      accelerator: pinned.accelerator,
      memoryMib: Math.ceil(memoryBytes / MEBIBYTE),
      processors: vcpus,
      ...(mac !== undefined && { mac }),
      consoleInput: true,
    };
  }
}
