import { cpus, totalmem } from "node:os";
import type { Hypeman } from "@onkernel/hypeman";
import { SUBNET } from "./addresses.ts";
import { ARCHITECTURE, type ImageRecord, PLATFORM } from "./images.ts";
import type { IngressRecord } from "./ingresses.ts";
import type { InstanceRecord } from "./instance.ts";
import type { Instances } from "./instances.ts";
import type { Machines } from "./machines.ts";
import type { SnapshotRecord } from "./snapshots.ts";
import type { VolumeRecord } from "./volumes.ts";

/** Version of the API that this serves. */
const API_VERSION = "0.3.0";

/** What a method of the official client resolves to, without methods that its types wrongly give to some answers. */
type Answer<Method extends (...args: never[]) => PromiseLike<unknown>> = Omit<
  Awaited<ReturnType<Method>>,
  "get" | "reclaimMemory"
>;

/** An instance in the API. */
export function instanceAnswer(
  instance: InstanceRecord,
  machines: Pick<Machines, "of" | "stateOf" | "hasMemory">,
): Hypeman.Instance {
  const { own: _own, ...told } = instance;
  // Read the state first: "Stopped" must come with the status, which the machine has reported by then.
  const state = machines.stateOf(instance);
  const { exitCode = null, exitMessage } = machines.of(instance.id).words();
  return {
    ...told,
    state,
    expires_at: null,
    hypervisor: "qemu",
    has_snapshot: machines.hasMemory(instance),
    exit_code: exitCode,
    ...(exitMessage !== undefined && { exit_message: exitMessage }),
    platform: PLATFORM,
  };
}

/** A volume in the API. */
export function volumeAnswer(volume: VolumeRecord, instances: Instances): Hypeman.Volume {
  const attachments = instances.attachedTo(volume.id).map(({ instance, mount }) => ({
    instance_id: instance.id,
    mount_path: mount.mount_path,
    readonly: mount.readonly === true,
  }));
  return { ...volume, attachments };
}

/** An image in the API. */
export function imageAnswer({ id: _id, ...image }: ImageRecord): Hypeman.Image {
  return image;
}

/** A snapshot in the API, which has no version of the hypervisor, no processor and no agent. */
export function snapshotAnswer({ source: _source, ...snapshot }: SnapshotRecord): Hypeman.Snapshot {
  return snapshot;
}

/** An ingress in the API (hypeman 8853445, cmd/api/api/ingress.go:144-185). */
export function ingressAnswer(ingress: IngressRecord): Hypeman.Ingress {
  return { ...ingress, rules: ingress.rules.map((rule) => ({ ...rule, tls: false, redirect_http: false })) };
}

/** What this host can do. */
export function capabilitiesAnswer(version: string): Answer<Hypeman["capabilities"]["get"]> {
  return {
    server: { api_version: API_VERSION, version },
    host: { os: "linux", arch: ARCHITECTURE },
    default_runtime: { name: "qemu", available: true },
    runtimes: [{ name: "qemu", available: true, features: ["snapshots", "standby", "fork", "pause"] }],
    network: { model: "nat", guest_to_guest: false, subnet: SUBNET },
    images: { platforms: [PLATFORM], default_platform: PLATFORM },
    features: ["instances", "images", "volumes", "ingresses"],
  };
}

/**
 * The host's resources, and what running instances use of them. @param memoryBytes limit for all instances; undefined:
 * none
 */
export function resourcesAnswer(
  instances: Instances,
  memoryBytes: number | undefined,
): Answer<Hypeman["resources"]["get"]> {
  const running = [...instances.list({}, "Running"), ...instances.list({}, "Initializing")];
  const status = (type: string, capacity: number, allocated: number) => ({
    type,
    capacity,
    allocated,
    effective_limit: capacity,
    available: Math.max(0, capacity - allocated),
    oversub_ratio: 1,
  });
  const allocations = running.map(({ id, name, vcpus, own }) => ({
    instance_id: id,
    instance_name: name,
    cpu: vcpus,
    memory_bytes: own.memoryBytes,
  }));
  const sum = (field: "cpu" | "memory_bytes"): number => allocations.reduce((total, each) => total + each[field], 0);
  return {
    cpu: status("cpu", cpus().length, sum("cpu")),
    memory: status("memory", memoryBytes ?? totalmem(), sum("memory_bytes")),
    disk: status("disk", 0, 0),
    network: status("network", 0, 0),
    allocations,
  };
}
