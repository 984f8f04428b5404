import type { Hypeman } from "@onkernel/hypeman";
import {
  capabilitiesAnswer,
  imageAnswer,
  instanceAnswer,
  resourcesAnswer,
  snapshotAnswer,
  volumeAnswer,
} from "./answers.ts";
import { ApiFailure, asInternal } from "./failure.ts";
import type { Images } from "./images.ts";
import { demandForkable, type InstanceRecord } from "./instance.ts";
import type { Instances } from "./instances.ts";
import {
  forkRequest,
  imageRequest,
  instanceRequest,
  queryTags,
  snapshotRequest,
  startRequest,
  volumeRequest,
} from "./requests.ts";
import type { Handler, Reply, Routes } from "./server.ts";
import type { Snapshots } from "./snapshots.ts";
import type { Volumes } from "./volumes.ts";

/** What the API is about. */
export interface Holdings {
  readonly images: Images;
  readonly volumes: Volumes;
  readonly instances: Instances;
  readonly snapshots: Snapshots;
  /** Version of the daemon. */
  readonly version: string;
}

/** The part of the substrate's API that sandboxes need. */
export function routesOf(holdings: Holdings): Routes {
  const { instances, version } = holdings;
  return {
    "GET /health": () => [200, { status: "ok" }],
    "GET /capabilities": () => [200, capabilitiesAnswer(version)],
    "GET /resources": () => [200, resourcesAnswer(instances)],
    ...imageRoutes(holdings),
    ...volumeRoutes(holdings),
    ...instanceRoutes(holdings),
    ...snapshotRoutes(holdings),
  };
}

function imageRoutes({ images }: Holdings): Routes {
  return {
    "GET /images": ({ query }) => [200, images.list(queryTags(query)).map(imageAnswer)],
    "POST /images": async ({ body }) => {
      const { name, tags = {} } = imageRequest(await body());
      return [202, imageAnswer(images.create(name, tags))];
    },
    "GET /images/{name}": ({ id }) => [200, imageAnswer(images.get(id))],
    "DELETE /images/{name}": ({ id }) => {
      images.remove(images.get(id));
      return [204];
    },
  };
}

function volumeRoutes({ volumes, instances }: Holdings): Routes {
  return {
    "GET /volumes": ({ query }) => [
      200,
      volumes.list(queryTags(query)).map((volume) => volumeAnswer(volume, instances)),
    ],
    "POST /volumes": failing("failed to create volume", async ({ body }) => [
      201,
      volumeAnswer(await volumes.create(volumeRequest(await body())), instances),
    ]),
    "POST /volumes/from-archive": failing("failed to create volume", async ({ query, stream }) => {
      const { name, size_gb, id } = Object.fromEntries(query);
      const request = volumeRequest({ name, size_gb: Number(size_gb), id, tags: queryTags(query) });
      return [201, volumeAnswer(await volumes.create(request, stream), instances)];
    }),
    "GET /volumes/{id}": ({ id }) => [200, volumeAnswer(volumes.get(id), instances)],
    "DELETE /volumes/{id}": ({ id }) => {
      const volume = volumes.get(id);
      if (instances.attachedTo(volume.id).length > 0)
        throw new ApiFailure(409, "conflict", "volume is in use by an instance");
      volumes.remove(volume);
      return [204];
    },
  };
}

function instanceRoutes({ instances, snapshots }: Holdings): Routes {
  const reply = async (status: number, instance: InstanceRecord | Promise<InstanceRecord>): Promise<Reply> => [
    status,
    instanceAnswer(await instance, instances.machines),
  ];
  return {
    "GET /instances": ({ query }) => {
      const found = instances.list(queryTags(query), query.get("state") ?? undefined);
      return [200, found.map((instance) => instanceAnswer(instance, instances.machines))];
    },
    "POST /instances": failing("failed to create instance", async ({ body }) =>
      reply(201, instances.create(instanceRequest(await body()))),
    ),
    "GET /instances/{id}": ({ id }) => reply(200, instances.get(id)),
    "DELETE /instances/{id}": failing("failed to delete instance", async ({ id, query }) => {
      await instances.delete(instances.get(id), query.get("graceful_shutdown") === "true");
      return [204];
    }),
    "POST /instances/{id}/start": failing("failed to start instance", async ({ id, body }) =>
      reply(200, instances.start(instances.get(id), startRequest(await body()))),
    ),
    "POST /instances/{id}/stop": failing("failed to stop instance", ({ id }) =>
      reply(200, instances.stop(instances.get(id))),
    ),
    "POST /instances/{id}/standby": failing("failed to standby instance", ({ id }) =>
      reply(200, instances.standby(instances.get(id))),
    ),
    "POST /instances/{id}/restore": failing("failed to restore instance", ({ id }) =>
      reply(200, instances.restore(instances.get(id))),
    ),
    "POST /instances/{id}/fork": failing("failed to fork instance", async ({ id, body }) =>
      reply(201, forked(instances, instances.get(id), forkRequest(await body()))),
    ),
    "POST /instances/{id}/snapshots": failing("failed to create snapshot", async ({ id, body }) => [
      201,
      snapshotAnswer(await snapshots.create(instances.get(id), snapshotRequest(await body()))),
    ]),
  };
}

/** A fork ends in the state that its source was in, unless the caller asks for another. */
async function forked(
  instances: Instances,
  source: InstanceRecord,
  { name, from_running, target_state }: Hypeman.InstanceForkParams,
): Promise<InstanceRecord> {
  const state = instances.machines.stateOf(source);
  const isRunning = state === "Running" || state === "Initializing";
  if (isRunning && from_running !== true)
    throw new ApiFailure(409, "conflict", `cannot fork from state ${state} (set from_running=true)`);
  demandForkable(source);
  const target = target_state ?? (isRunning ? "Running" : state);
  return instances.suspended(source, (current) =>
    instances.fork(current, instances.machines.folderOf(current.id), name, target),
  );
}

function snapshotRoutes({ snapshots, instances }: Holdings): Routes {
  return {
    "GET /snapshots": ({ query }) => {
      const fields = ["name", "kind", "source_instance_id"].filter((field) => query.has(field));
      const wanted = Object.fromEntries(fields.map((field) => [field, query.get(field)]));
      return [200, snapshots.list(queryTags(query), wanted).map(snapshotAnswer)];
    },
    "GET /snapshots/{id}": ({ id }) => [200, snapshotAnswer(snapshots.get(id))],
    "DELETE /snapshots/{id}": async ({ id }) => {
      await snapshots.delete(id);
      return [204];
    },
    "POST /snapshots/{id}/fork": failing("failed to fork snapshot", async ({ id, body }) => {
      const { name, target_state } = forkRequest(await body());
      return [201, instanceAnswer(await snapshots.fork(id, name, target_state), instances.machines)];
    }),
  };
}

/** A handler whose failures, but refusals, are told as an internal error with these words. */
function failing(words: string, handle: Handler): Handler {
  return async (call) => {
    try {
      return await handle(call);
    } catch (error) {
      throw asInternal(words, error);
    }
  };
}
