import type { Hypeman } from "@onkernel/hypeman";
import type { SandboxSpec, Tags } from "./spec.ts";
import {
  type Image,
  type Ingress,
  type Instance,
  type InstanceParts,
  type Snapshot,
  USUAL_LISTEN_PORT,
  type Volume,
} from "./substrate.ts";

export type SdkInstance = Hypeman.Instance;

/** Body of the request that creates an instance. */
export function createBody(spec: SandboxSpec, parts: InstanceParts): Hypeman.InstanceCreateParams {
  const { image, hypervisor, vcpus, memory, overlaySize } = spec;
  const { name, entrypoint, env, tags, volumes } = parts;
  return {
    name,
    image,
    entrypoint: [entrypoint],
    // If `cmd` were empty, the daemon would pass the image's command to the agent as arguments, which the agent
    // refuses.
    cmd: ["run"],
    env,
    tags,
    // hypeman's own agent must run in the guest as well, because a standby waits for it.
    skip_guest_agent: false,
    network: { enabled: true },
    volumes: volumes.map((mount) => ({
      volume_id: mount.volumeId,
      mount_path: mount.mountPath,
      // The substrate cannot fork an instance with a writable volume.
      readonly: true,
      ...(mount.overlaySize !== undefined && { overlay: true, overlay_size: mount.overlaySize }),
    })),
    ...(hypervisor !== undefined && { hypervisor: hypervisor as NonNullable<SdkInstance["hypervisor"]> }),
    ...(vcpus !== undefined && { vcpus }),
    ...(memory !== undefined && { size: memory }),
    ...(overlaySize !== undefined && { overlay_size: overlaySize }),
  };
}

export function instanceOf(instance: SdkInstance): Instance {
  const { id, name, state, network, hypervisor, tags = {}, exit_code: exitCode, exit_message: exitMessage } = instance;
  const { state_error: stateError } = instance;
  return {
    id,
    name,
    state,
    stateError: stateError ?? undefined,
    // The daemon reports an empty address for a newly created fork.
    ip: network?.ip === "" ? undefined : (network?.ip ?? undefined),
    hypervisor,
    tags,
    exitCode: exitCode ?? undefined,
    exitMessage,
  };
}

export function volumeOf({ id, tags = {}, created_at }: Hypeman.Volume): Volume {
  return { id, tags, createdMs: Date.parse(created_at) };
}

export function snapshotOf({ id, name, tags = {}, size_bytes: sizeBytes }: Hypeman.Snapshot): Snapshot {
  return { id, name: name ?? undefined, tags, sizeBytes };
}

export function imageOf(image: Hypeman.Image): Image {
  const { name, digest, status, entrypoint, cmd, created_at, size_bytes, queue_position, error } = image;
  const createdMs = Date.parse(created_at);
  return {
    name,
    digest,
    status,
    entrypoint,
    cmd,
    createdMs: Number.isNaN(createdMs) ? undefined : createdMs,
    sizeBytes: size_bytes ?? undefined,
    isQueued: typeof queue_position === "number",
    problem: error ?? undefined,
  };
}

/** Filters the daemon's answer again, because a daemon that does not support the filter returns all objects. */
export function has(tags: Tags, wanted: Tags): boolean {
  return Object.entries(wanted).every(([key, value]) => tags[key] === value);
}

export function ingressOf({ id, name, tags = {}, rules }: Hypeman.Ingress): Ingress {
  const own = rules.map(({ match, target }) => ({
    hostname: match.hostname,
    listenPort: match.port ?? USUAL_LISTEN_PORT,
    instance: target.instance,
    port: target.port,
  }));
  return { id, name, tags, rules: own };
}

export function ingressBody({ name, tags, rules }: Omit<Ingress, "id">): Hypeman.IngressCreateParams {
  const own = rules.map(({ hostname, listenPort, instance, port }) => ({
    match: { hostname, port: listenPort },
    target: { instance, port },
  }));
  return { name, tags, rules: own };
}
