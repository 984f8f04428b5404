import { cpus, totalmem } from "node:os";
import type { Hypeman } from "@onkernel/hypeman";
import { SUBNET } from "./addresses.ts";
import type { ImageRecord } from "./images.ts";
import type { InstanceRecord } from "./instance.ts";
import type { Instances } from "./instances.ts";
import type { Machines } from "./machines.ts";
import type { SnapshotRecord } from "./snapshots.ts";
import type { VolumeRecord } from "./volumes.ts";

/** Version of the API that this serves. */
const API_VERSION = "0.3.0";
/** By Go's name. */
const ARCHITECTURE = process.arch === "x64" ? "amd64" : process.arch;
const PLATFORM = `linux/${ARCHITECTURE}`;

/** What a method of the official client resolves to, without methods that its types wrongly give to some answers. */
type Answer<Method extends (...args: never[]) => PromiseLike<unknown>> = Omit<
  Awaited<ReturnType<Method>>,
  "get" | "reclaimMemory"
>;

/** An instance in the API. */
export function instanceAnswer(instance: InstanceRecord, machines: Machines): Hypeman.Instance {
  const { address, mac, hasNetwork, overlayBytes, memoryBytes, env, tags, volumes } = instance;
  const { exitCode = null, exitMessage } = machines.wordsOf(instance);
  return {
    id: instance.id,
    name: instance.name,
    image: instance.imageName,
    state: machines.stateOf(instance),
    created_at: instance.createdAt,
    started_at: instance.startedAt ?? null,
    stopped_at: instance.stoppedAt ?? null,
    expires_at: null,
    env: { ...env },
    tags: { ...tags },
    network: hasNetwork
      ? { enabled: true, name: "default", ip: address ?? null, mac: mac ?? null }
      : { enabled: false, ip: null, mac: null },
    hypervisor: "qemu",
    has_snapshot: machines.hasMemory(instance),
    exit_code: exitCode,
    ...(exitMessage !== undefined && { exit_message: exitMessage }),
    platform: PLATFORM,
    vcpus: instance.vcpus,
    size: sizeText(memoryBytes),
    overlay_size: sizeText(overlayBytes),
    volumes: volumes.map(({ volumeId, mountPath, isReadonly, overlaySize }) => ({
      volume_id: volumeId,
      mount_path: mountPath,
      readonly: isReadonly,
      ...(overlaySize !== undefined && { overlay: true, overlay_size: overlaySize }),
    })),
  };
}

/** A volume in the API. */
export function volumeAnswer(volume: VolumeRecord, instances: Instances): Hypeman.Volume {
  return {
    id: volume.id,
    name: volume.name,
    size_gb: volume.sizeGb,
    tags: { ...volume.tags },
    created_at: volume.createdAt,
    attachments: instances.attachedTo(volume.id).map(({ instance, mount }) => ({
      instance_id: instance.id,
      mount_path: mount.mountPath,
      readonly: mount.isReadonly,
    })),
  };
}

/** An image in the API, which does not say why one failed. */
export function imageAnswer(image: ImageRecord): Hypeman.Image {
  return {
    name: image.name,
    digest: image.digest,
    status: image.status,
    created_at: image.createdAt,
    size_bytes: image.status === "ready" ? image.sizeBytes : null,
    platform: PLATFORM,
    error: null,
    tags: { ...image.tags },
    entrypoint: image.entrypoint ? [...image.entrypoint] : null,
    cmd: image.cmd ? [...image.cmd] : null,
    env: { ...image.env },
    working_dir: image.working_dir ?? null,
  };
}

/** A snapshot in the API, which has no version of the hypervisor, no processor and no agent. */
export function snapshotAnswer({
  id,
  name,
  kind,
  tags,
  source,
  sizeBytes,
  createdAt,
}: SnapshotRecord): Hypeman.Snapshot {
  return {
    id,
    name,
    kind,
    tags: { ...tags },
    source_instance_id: source.id,
    source_instance_name: source.name,
    source_hypervisor: "qemu",
    size_bytes: sizeBytes,
    created_at: createdAt,
    compression_state: "none",
  };
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
    features: ["instances", "images", "volumes"],
  };
}

/** What this host has, and what of it running instances use. Nothing is reserved, so nothing is refused. */
export function resourcesAnswer(instances: Instances): Answer<Hypeman["resources"]["get"]> {
  const running = [...instances.list({}, "Running"), ...instances.list({}, "Initializing")];
  const status = (type: string, capacity: number, allocated: number) => ({
    type,
    capacity,
    allocated,
    effective_limit: capacity,
    available: Math.max(0, capacity - allocated),
    oversub_ratio: 1,
  });
  const sum = (of: (instance: InstanceRecord) => number): number =>
    running.reduce((total, each) => total + of(each), 0);
  return {
    cpu: status(
      "cpu",
      cpus().length,
      sum(({ vcpus }) => vcpus),
    ),
    memory: status(
      "memory",
      totalmem(),
      sum(({ memoryBytes }) => memoryBytes),
    ),
    disk: status("disk", 0, 0),
    network: status("network", 0, 0),
    allocations: running.map(({ id, name, vcpus, memoryBytes }) => ({
      instance_id: id,
      instance_name: name,
      cpu: vcpus,
      memory_bytes: memoryBytes,
    })),
  };
}

/** As "1.0 GB". */
function sizeText(bytes: number): string {
  const units = ["B", "KB", "MB", "GB", "TB"];
  const power = Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  return `${(bytes / 1024 ** power).toFixed(1)} ${units[power]}`;
}
