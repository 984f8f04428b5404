import {
  capabilitiesAnswer,
  imageAnswer,
  instanceAnswer,
  resourcesAnswer,
  snapshotAnswer,
  volumeAnswer,
} from "./answers.ts";
import { ApiFailure, invalidRequest, SchemaFailure } from "./failure.ts";
import type { Images } from "./images.ts";
import {
  demandForkable,
  type InstanceRecord,
  type InstanceRequest,
  type Instances,
  type VolumeMount,
} from "./instances.ts";
import {
  type Body,
  checkedName,
  count,
  flag,
  hypervisor,
  object,
  objects,
  oneLine,
  pairs,
  queryTags,
  required,
  size,
  tagsOf,
  targetState,
  text,
  texts,
} from "./parameters.ts";
import type { Reply, Route } from "./server.ts";
import type { Snapshots } from "./snapshots.ts";
import type { Volumes } from "./volumes.ts";

const MEBIBYTE = 2 ** 20;
/** Enough for the agent and a small workload. */
const USUAL = { memoryBytes: 768 * MEBIBYTE, overlayBytes: 1024 * MEBIBYTE };
const LEAST_MEMORY_BYTES = 256 * MEBIBYTE;
const EGRESS_MODES: ReadonlySet<string | undefined> = new Set([undefined, "all", "http_https_only"]);

/** What the API is about. */
export interface Holdings {
  readonly images: Images;
  readonly volumes: Volumes;
  readonly instances: Instances;
  readonly snapshots: Snapshots;
  /** Version of the daemon. */
  readonly version: string;
}

/** The part of the substrate's API that sandboxes are made with. */
export function routesOf(holdings: Holdings): Route[] {
  const { instances, version } = holdings;
  return [
    { method: "GET", path: "/health", isOpen: true, handle: () => [200, { status: "ok" }] },
    { method: "GET", path: "/capabilities", handle: () => [200, capabilitiesAnswer(version)] },
    { method: "GET", path: "/resources", handle: () => [200, resourcesAnswer(instances)] },
    ...imageRoutes(holdings),
    ...volumeRoutes(holdings),
    ...instanceRoutes(holdings),
    ...snapshotRoutes(holdings),
  ];
}

function imageRoutes({ images }: Holdings): Route[] {
  return [
    { method: "GET", path: "/images", handle: ({ query }) => [200, images.list(queryTags(query)).map(imageAnswer)] },
    {
      method: "POST",
      path: "/images",
      handle: async ({ body }) => {
        const fields = await body();
        return [202, imageAnswer(images.create(required(text(fields, "name"), "name"), tagsOf(fields)))];
      },
    },
    { method: "GET", path: "/images/{name}", handle: ({ id }) => [200, imageAnswer(images.get(id))] },
    {
      method: "DELETE",
      path: "/images/{name}",
      handle: ({ id }) => {
        images.remove(images.get(id));
        return [204];
      },
    },
  ];
}

function volumeRoutes({ volumes, instances }: Holdings): Route[] {
  return [
    {
      method: "GET",
      path: "/volumes",
      handle: ({ query }) => [200, volumes.list(queryTags(query)).map((volume) => volumeAnswer(volume, instances))],
    },
    {
      method: "POST",
      path: "/volumes",
      handle: async ({ body }) => {
        const fields = await body();
        const id = text(fields, "id");
        const volume = await volumes.create({
          name: required(text(fields, "name"), "name"),
          sizeGb: required(count(fields, "size_gb"), "size_gb"),
          tags: tagsOf(fields),
          ...(id !== undefined && { id }),
        });
        return [201, volumeAnswer(volume, instances)];
      },
    },
    {
      method: "POST",
      path: "/volumes/from-archive",
      handle: async ({ query, stream }) => {
        const [name, sizeGb, id] = [query.get("name"), Number(query.get("size_gb")), query.get("id")];
        if (name === null || name === "") throw invalidRequest("name: the query has to have it");
        if (!Number.isInteger(sizeGb) || sizeGb < 1)
          throw invalidRequest("size_gb: the query has to have a whole number from 1 on");
        const request = { name, sizeGb, tags: queryTags(query), ...(id !== null && { id }) };
        return [201, volumeAnswer(await volumes.create(request, stream), instances)];
      },
    },
    { method: "GET", path: "/volumes/{id}", handle: ({ id }) => [200, volumeAnswer(volumes.get(id), instances)] },
    {
      method: "DELETE",
      path: "/volumes/{id}",
      handle: ({ id }) => {
        const volume = volumes.get(id);
        if (instances.attachedTo(volume.id).length > 0)
          throw new ApiFailure(409, "conflict", "volume is in use by an instance");
        volumes.remove(volume);
        return [204];
      },
    },
  ];
}

function instanceRoutes({ instances, snapshots }: Holdings): Route[] {
  const reply = async (status: number, instance: Promise<InstanceRecord>): Promise<Reply> => [
    status,
    instanceAnswer(await instance, instances),
  ];
  return [
    {
      method: "GET",
      path: "/instances",
      handle: ({ query }) => {
        const found = instances.list(queryTags(query), query.get("state") ?? undefined);
        return [200, found.map((instance) => instanceAnswer(instance, instances))];
      },
    },
    {
      method: "POST",
      path: "/instances",
      handle: async ({ body }) => reply(201, instances.create(instanceRequest(await body()))),
    },
    { method: "GET", path: "/instances/{id}", handle: ({ id }) => [200, instanceAnswer(instances.get(id), instances)] },
    {
      method: "DELETE",
      path: "/instances/{id}",
      handle: async ({ id, query }) => {
        await instances.delete(instances.get(id), query.get("graceful_shutdown") === "true");
        return [204];
      },
    },
    {
      method: "POST",
      path: "/instances/{id}/start",
      handle: async ({ id, body }) => reply(200, instances.start(instances.get(id), commandOf(await body()))),
    },
    { method: "POST", path: "/instances/{id}/stop", handle: ({ id }) => reply(200, instances.stop(instances.get(id))) },
    {
      method: "POST",
      path: "/instances/{id}/standby",
      handle: ({ id }) => reply(200, instances.standby(instances.get(id))),
    },
    {
      method: "POST",
      path: "/instances/{id}/restore",
      handle: ({ id }) => reply(200, instances.restore(instances.get(id))),
    },
    {
      method: "POST",
      path: "/instances/{id}/fork",
      handle: async ({ id, body }) => reply(201, forked(instances, instances.get(id), await body())),
    },
    {
      method: "POST",
      path: "/instances/{id}/snapshots",
      handle: async ({ id, body }) => {
        const fields = await body();
        const kind = required(text(fields, "kind"), "kind");
        if (kind !== "Standby" && kind !== "Stopped")
          throw new SchemaFailure("/kind", "value is not one of the allowed values [Standby, Stopped]");
        const name = text(fields, "name");
        const source = instances.get(id);
        const tags = tagsOf(fields);
        const made = await snapshots.create(source, kind, name === undefined ? "" : checkedName(name), tags);
        return [201, snapshotAnswer(made)];
      },
    },
  ];
}

function snapshotRoutes({ snapshots, instances }: Holdings): Route[] {
  return [
    {
      method: "GET",
      path: "/snapshots",
      handle: ({ query }) => {
        const [name, kind, source] = [query.get("name"), query.get("kind"), query.get("source_instance_id")];
        const filter = {
          tags: queryTags(query),
          ...(name !== null && { name }),
          ...(kind !== null && { kind }),
          ...(source !== null && { sourceInstanceId: source }),
        };
        return [200, snapshots.list(filter).map(snapshotAnswer)];
      },
    },
    { method: "GET", path: "/snapshots/{id}", handle: ({ id }) => [200, snapshotAnswer(snapshots.get(id))] },
    {
      method: "DELETE",
      path: "/snapshots/{id}",
      handle: async ({ id }) => {
        await snapshots.delete(id);
        return [204];
      },
    },
    {
      method: "POST",
      path: "/snapshots/{id}/fork",
      handle: async ({ id, body }) => {
        const fields = await body();
        const name = checkedName(required(text(fields, "name"), "name"));
        return [201, instanceAnswer(await snapshots.fork(id, name, targetState(fields)), instances)];
      },
    },
  ];
}

/** A fork of an instance ends in the state that its source was in, unless another one is asked for. */
async function forked(instances: Instances, source: InstanceRecord, fields: Body): Promise<InstanceRecord> {
  const name = checkedName(required(text(fields, "name"), "name"));
  const state = instances.stateOf(source);
  const isRunning = state === "Running" || state === "Initializing";
  if (isRunning && !flag(fields, "from_running"))
    throw new ApiFailure(409, "conflict", `cannot fork from state ${state} (set from_running=true)`);
  demandForkable(source);
  const target = targetState(fields) ?? (isRunning ? "Running" : state);
  return instances.suspended(source, "failed to fork instance", (current) =>
    instances.fork(current, instances.folderOf(current.id), name, target),
  );
}

function commandOf(fields: Body): Pick<InstanceRequest, "entrypoint" | "cmd"> {
  const words = (field: string): readonly string[] | undefined =>
    texts(fields, field)?.map((word, n) => oneLine(word, `${field}/${n}`));
  const [entrypoint, cmd] = [words("entrypoint"), words("cmd")];
  return { ...(entrypoint && { entrypoint }), ...(cmd && { cmd }) };
}

/** Fields that nobody reads are no error: they are dropped, as the substrate does. */
function instanceRequest(fields: Body): InstanceRequest {
  const name = checkedName(required(text(fields, "name"), "name"));
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
  // Checked and without any effect: that is how the substrate is.
  const mode = text(object(object(network, "egress"), "enforcement"), "mode");
  if (!EGRESS_MODES.has(mode))
    throw new SchemaFailure(
      "/network/egress/enforcement/mode",
      "value is not one of the allowed values [all, http_https_only]",
    );
  return {
    name,
    image,
    env,
    hypervisor: hypervisor(fields),
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
