import { invalidRequest } from "./failure.ts";
import type { Command, InstanceRequest, InstanceState, VolumeMount } from "./instance.ts";
import {
  type Body,
  count,
  flag,
  object,
  objects,
  oneOf,
  pairs,
  required,
  size,
  tagsOf,
  text,
  texts,
} from "./parameters.ts";
import type { SnapshotKind } from "./snapshots.ts";

const MEBIBYTE = 2 ** 20;
/** Enough for the agent and a small workload. */
const USUAL = { memoryBytes: 768 * MEBIBYTE, overlayBytes: 1024 * MEBIBYTE };
const LEAST_MEMORY_BYTES = 256 * MEBIBYTE;
/** Hypervisors that the API knows by name. Only "qemu" is there, which shows when an instance is started. */
const HYPERVISORS = ["cloud-hypervisor", "firecracker", "qemu", "qemu-microvm", "vz"] as const;
const NAME = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;
/** The substrate mounts nothing at or below these. */
const RESERVED = "bin boot dev etc lib lib64 proc root run sbin sys tmp usr var".split(" ").map((name) => `/${name}`);

/** The instance that a body describes. As on the substrate unknown fields are ignored. @throws ApiFailure, SchemaFailure */
export function instanceRequest(fields: Body): InstanceRequest {
  const name = nameOf(fields);
  const image = required(text(fields, "image"), "image");
  const env = pairs(fields, "env");
  for (const [key, value] of Object.entries(env)) {
    if (!/^[^=\s]+$/.test(key)) throw invalidRequest(`env: ${JSON.stringify(key)} is no name of a variable`);
    oneLine(value, `env/${key}`);
  }
  const memoryBytes = size(fields, "size") ?? USUAL.memoryBytes;
  if (memoryBytes < LEAST_MEMORY_BYTES) throw invalidRequest("size: a guest needs 256MB or more");
  const network = object(fields, "network");
  const hasNetwork = network["enabled"] === undefined || flag(network, "enabled");
  // The substrate checks the mode and enforces nothing.
  const enforcement = object(object(network, "egress"), "enforcement");
  oneOf(enforcement, "mode", ["all", "http_https_only"], "/network/egress/enforcement/mode");
  return {
    name,
    image,
    env,
    hypervisor: oneOf(fields, "hypervisor", HYPERVISORS) ?? "qemu",
    ...commandOf(fields),
    tags: tagsOf(fields),
    volumes: objects(fields, "volumes").map(volumeMount),
    memoryBytes,
    overlayBytes: size(fields, "overlay_size") ?? USUAL.overlayBytes,
    vcpus: count(fields, "vcpus") ?? 1,
    hasNetwork,
    skipGuestAgent: flag(fields, "skip_guest_agent"),
  };
}

/** The entrypoint and its arguments, as far as the body has them. */
export function commandOf(fields: Body): Command {
  const words = (field: string): readonly string[] | undefined =>
    texts(fields, field)?.map((word, n) => oneLine(word, `${field}/${n}`));
  const [entrypoint, cmd] = [words("entrypoint"), words("cmd")];
  return { ...(entrypoint && { entrypoint }), ...(cmd && { cmd }) };
}

/** The name of an instance or a snapshot. */
export function nameOf(fields: Body): string {
  const name = required(text(fields, "name"), "name");
  if (NAME.test(name)) return name;
  throw invalidRequest("name: lowercase letters, digits and dashes, at most 63, and no dash at either end");
}

/** The state that a fork is wanted in; undefined where the body names none. */
export function targetState(fields: Body): InstanceState | undefined {
  return oneOf(fields, "target_state", ["Stopped", "Standby", "Running"]);
}

/** The kind of snapshot that is wanted. */
export function snapshotKind(fields: Body): SnapshotKind {
  return required(oneOf(fields, "kind", ["Standby", "Stopped"]), "kind");
}

/** Why nothing can be mounted at a path; undefined where it can. */
export function mountProblem(path: string): string | undefined {
  if (!path.startsWith("/") || path === "/" || path.split("/").includes(".."))
    return `mount_path ${JSON.stringify(path)} is no absolute path below /`;
  if (/[\s']/.test(path)) return `mount_path ${JSON.stringify(path)} has a blank or a quote in it`;
  const reserved = RESERVED.find((each) => path === each || path.startsWith(`${each}/`));
  return reserved === undefined ? undefined : `mount_path ${path} is at or below ${reserved}`;
}

function volumeMount(fields: Body): VolumeMount {
  const isReadonly = flag(fields, "readonly");
  const overlaySize = text(fields, "overlay_size");
  const hasOverlay = flag(fields, "overlay");
  if (hasOverlay && !isReadonly) throw invalidRequest("volumes: overlay needs readonly");
  if (hasOverlay && size(fields, "overlay_size") === undefined)
    throw invalidRequest("volumes: overlay needs overlay_size");
  return {
    volumeId: required(text(fields, "volume_id"), "volume_id"),
    mountPath: required(text(fields, "mount_path"), "mount_path"),
    isReadonly,
    ...(hasOverlay && overlaySize !== undefined && { overlaySize }),
  };
}

/** Refuses a line break, which the real substrate allows: the guest's init here reads lines. */
function oneLine(value: string, field: string): string {
  if (/[\n\0]/.test(value))
    throw invalidRequest(`${field}: no line break or NUL can be in it on the development substrate`);
  return value;
}
