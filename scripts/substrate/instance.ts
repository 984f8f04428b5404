import { randomBytes } from "node:crypto";
import { existsSync, renameSync, statSync } from "node:fs";
import { join } from "node:path";
import { copyDisk } from "../../test/vm/harness/disks.ts";
import { ApiFailure } from "./failure.ts";
import type { Tags } from "./parameters.ts";
import { MEMORY } from "./vm.ts";

/** The instance's own disk, in its folder. */
export const DISK = "disk";
/** What its machine boots from. */
export const INITRAMFS = "initramfs";

/** A volume in an instance. */
export interface VolumeMount {
  readonly volumeId: string;
  readonly mountPath: string;
  readonly isReadonly: boolean;
  /** Size of the layer that takes the instance's writes, with its unit; absent: there is none. */
  readonly overlaySize?: string;
}

/** Entrypoint and arguments; what is absent is the image's. */
export interface Command {
  readonly entrypoint?: readonly string[];
  readonly cmd?: readonly string[];
}

/** What a caller asks for. */
export interface InstanceRequest extends Command {
  readonly name: string;
  readonly image: string;
  readonly hypervisor: string;
  readonly env: Readonly<Record<string, string>>;
  readonly tags: Tags;
  readonly volumes: readonly VolumeMount[];
  readonly memoryBytes: number;
  readonly overlayBytes: number;
  readonly vcpus: number;
  readonly hasNetwork: boolean;
  readonly skipGuestAgent: boolean;
}

/** An instance on disk. The record has no state: the instance's folder and process show that. */
export interface InstanceRecord extends InstanceRequest {
  readonly id: string;
  /** Full reference of the image, which the API shows. */
  readonly imageName: string;
  readonly imageDigest: string;
  /** The image whose disk the guest's memory refers to; another of the same content will not do. */
  readonly imageId: string;
  /** QEMU, kernel and accelerator of its boot. A guest can only continue on the same. */
  readonly pinned: { readonly version: string; readonly kernelImage: string; readonly accelerator: string };
  readonly address?: string;
  readonly mac?: string;
  /** A fork of a running guest: the entrypoint started before the fork, so its own console does not say so. */
  readonly isContinued: boolean;
  readonly createdAt: string;
  readonly startedAt?: string;
  readonly stoppedAt?: string;
}

export type InstanceState = "Initializing" | "Running" | "Standby" | "Stopped";

/** Refuses to fork an instance that writes to a volume: both guests would write to it. @throws ApiFailure */
export function demandForkable({ volumes }: InstanceRecord): void {
  const writable = volumes.find(({ isReadonly }) => !isReadonly);
  if (writable === undefined) return;
  const where = `volume "${writable.volumeId}" mounted at "${writable.mountPath}"`;
  throw new ApiFailure(501, "not_supported", `cannot fork instance with writable ${where}; use readonly+overlay`);
}

/** Copies disk, initramfs and memory into the folder of a snapshot or a fork; returns their size on disk in bytes. */
export function copyInstanceFiles(from: string, to: string): number {
  let sizeBytes = 0;
  for (const name of [INITRAMFS, DISK, MEMORY].filter((each) => existsSync(join(from, each)))) {
    copyDisk(join(from, name), join(to, `${name}.new`));
    renameSync(join(to, `${name}.new`), join(to, name));
    sizeBytes += statSync(join(to, name)).blocks * 512;
  }
  return sizeBytes;
}

/** A new random id for an instance or a snapshot. */
export function newId(): string {
  return randomBytes(8).toString("hex");
}
