import { randomBytes, randomInt } from "node:crypto";
import { existsSync, renameSync, statSync } from "node:fs";
import { join } from "node:path";
import type { Hypeman } from "@onkernel/hypeman";
import { copyDisk } from "../../vm/harness/guest-files.ts";
import type { Command } from "./records.ts";
import { MEMORY } from "./vm.ts";

/** The instance's own disk, in its directory. */
export const DISK = "disk";
/** What its machine boots from. */
export const INITRAMFS = "initramfs";

/** The API's fields of an instance, except for those that its directory and its machine show. */
type Told = Required<
  Pick<
    Hypeman.Instance,
    "id" | "name" | "image" | "created_at" | "env" | "tags" | "network" | "vcpus" | "size" | "overlay_size" | "volumes"
  >
> &
  Pick<Hypeman.Instance, "started_at" | "stopped_at">;

/** An instance on disk. */
export interface InstanceRecord extends Readonly<Told> {
  /** Fields that the API does not show. */
  readonly own: {
    readonly command: Command;
    readonly memoryBytes: number;
    readonly imageDigest: string;
    /** The image whose disk the guest's memory refers to; another of the same content will not do. */
    readonly imageId: string;
    /** Kernel and accelerator of its boot. A guest can only continue on the same. */
    readonly pinned: { readonly kernelImage: string; readonly accelerator: string };
    /** A fork of a running guest: the entrypoint started before the fork, so its own console does not say so. */
    readonly isContinued: boolean;
    /**
     * A fork is not attached to its volumes, which can be deleted under it (lib/instances/create.go:444 is the only
     * caller).
     */
    readonly isFork?: boolean;
    /** Number of the vsock device. A fork with memory keeps that of its source (lib/instances/snapshot.go:443). */
    readonly cid?: number;
  };
}

/** A standby that was broken off leaves "Paused". */
export type InstanceState = "Initializing" | "Running" | "Paused" | "Standby" | "Stopped";

/** Copies disk, initramfs and memory into the directory of a snapshot or a fork; returns their size on disk in bytes. */
export function copyInstanceFiles(from: string, to: string): number {
  let sizeBytes = 0;
  for (const name of [INITRAMFS, DISK, MEMORY].filter((each) => existsSync(join(from, each)))) {
    copyDisk(join(from, name), join(to, `${name}.new`));
    renameSync(join(to, `${name}.new`), join(to, name));
    sizeBytes += statSync(join(to, name)).blocks * 512;
  }
  return sizeBytes;
}

/** A new random number of a vsock device. */
export function newCid(): number {
  return randomInt(3, 2 ** 32 - 1);
}

/** A new random id for an instance or a snapshot. */
export function newId(): string {
  return randomBytes(8).toString("hex");
}
