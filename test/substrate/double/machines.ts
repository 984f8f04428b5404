import { existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import { qemusBelow, type QemuOptions } from "../../vm/harness/qemu.ts";
import { AGENT_PORT } from "./addresses.ts";
import { invalidState } from "./failure.ts";
import { type GuestParts, writeInitramfs, writeInstanceDisk } from "./guest.ts";
import type { ImageRecord, Images } from "./images.ts";
import { DISK, INITRAMFS, type InstanceRecord, type InstanceState } from "./instance.ts";
import type { Rules } from "./rules.ts";
import { MEMORY, Vm } from "./vm.ts";
import type { Volumes } from "./volumes.ts";

const MEBIBYTE = 2 ** 20;

/** The platform of all machines. */
export interface Host {
  readonly images: Images;
  readonly volumes: Volumes;
  /** Gets kernel and init, at the first guest that needs them. */
  readonly guest: () => Promise<GuestParts>;
  readonly rules: Rules;
  readonly log: (line: string) => void;
}

/** The machines of a daemon's instances: boots, suspends, continues and ends them. */
export class Machines {
  readonly #directory: string;
  readonly #host: Host;

  constructor(directory: string, host: Host) {
    this.#directory = directory;
    this.#host = host;
  }

  /** Ends all machines. */
  async endAll(): Promise<void> {
    await Promise.all(qemusBelow(this.#directory).map((machine) => new Vm(machine.directory).kill()));
  }

  stateOf(instance: InstanceRecord): InstanceState {
    const vm = this.of(instance.id);
    if (vm.isRunning) {
      if (vm.isPaused) return "Paused";
      return instance.own.isContinued || vm.words().entrypointStarted ? "Running" : "Initializing";
    }
    return this.hasMemory(instance) ? "Standby" : "Stopped";
  }

  hasMemory({ id }: InstanceRecord): boolean {
    return existsSync(join(this.directoryOf(id), MEMORY));
  }

  /** The machine of an instance, whether it runs or not. */
  of(id: string): Vm {
    return new Vm(this.directoryOf(id));
  }

  /** The directory that an instance's machine runs in. */
  directoryOf(id: string): string {
    return join(this.#directory, id);
  }

  /** Makes the disk of a new instance; returns what the instance is pinned to from now on. */
  async makeDisk(id: string, overlayBytes: number): Promise<InstanceRecord["own"]["pinned"]> {
    const guest = await this.#host.guest();
    writeInstanceDisk(guest, join(this.directoryOf(id), DISK), overlayBytes);
    return { kernelImage: guest.kernel.image, accelerator: guest.accelerator.name };
  }

  /** The image to boot an instance from: its own, or where that was removed another of the same content. */
  imageOf({ image: name, own: { imageId, imageDigest } }: InstanceRecord): ImageRecord {
    const image = this.#host.images.byId(imageId) ?? this.#host.images.byDigest(imageDigest);
    if (image === undefined) throw new Error(`its image ${name} is gone`);
    return image;
  }

  /** Boots an instance from its disk. Resolves when its machine runs; init may still be running. */
  async boot(record: InstanceRecord): Promise<void> {
    writeInitramfs(
      await this.#host.guest(),
      join(this.directoryOf(record.id), INITRAMFS),
      record,
      this.imageOf(record),
    );
    await this.of(record.id).start(this.#options(record));
  }

  /** Continues an instance from its memory, which is used up by that. */
  async continue(record: InstanceRecord): Promise<void> {
    const options = this.#options(record);
    await this.of(record.id).start({ ...options, incoming: MEMORY });
    rmSync(join(this.directoryOf(record.id), MEMORY));
  }

  /** Writes a running guest's memory into its directory, and ends the machine. If that fails, the guest runs on. */
  async suspend(record: InstanceRecord, signal: AbortSignal): Promise<void> {
    const state = this.stateOf(record);
    // lib/instances/standby.go:53: the caller has to wait for init.
    if (state !== "Running") throw invalidState(`cannot standby from state ${state}`);
    await this.of(record.id).standby(signal);
  }

  /** Ends a machine, if there is one. Init first gets `graceMs` to stop the entrypoint; 0: init is not asked. */
  async end(id: string, graceMs: number): Promise<void> {
    const vm = this.of(id);
    if (vm.isRunning && !(graceMs > 0 && (await vm.stop(graceMs * this.#host.rules.patience)))) await vm.kill();
  }

  #options({ image: name, volumes, network, vcpus, own }: InstanceRecord): QemuOptions {
    const image = this.#host.images.byId(own.imageId);
    if (image === undefined) throw new Error(`its image ${name} is gone`);
    const { ip, mac } = network;
    return {
      kernelImage: own.pinned.kernelImage,
      initramfs: INITRAMFS,
      disks: [
        { file: DISK, isReadonly: false },
        { file: this.#host.images.diskOf(image), isReadonly: true },
        ...volumes.map((mount) => ({
          file: this.#host.volumes.diskOf(mount.volume_id),
          isReadonly: mount.readonly === true,
        })),
      ],
      forwards: ip ? [{ address: ip, port: AGENT_PORT, guestPort: AGENT_PORT }] : [],
      accelerator: own.pinned.accelerator,
      memoryMib: Math.ceil(own.memoryBytes / MEBIBYTE),
      processors: vcpus,
      ...(mac && { mac }),
      consoleInput: true,
      ...(this.#host.rules.bootTime !== undefined && { bootTime: this.#host.rules.bootTime }),
    };
  }
}
