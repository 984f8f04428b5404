import {
  capabilitiesAnswer,
  imageAnswer,
  instanceAnswer,
  resourcesAnswer,
  snapshotAnswer,
  volumeAnswer,
} from "./answers.ts";
import { ApiFailure, invalidRequest } from "./failure.ts";
import type { Images } from "./images.ts";
import { demandForkable, type InstanceRecord } from "./instance.ts";
import type { Instances } from "./instances.ts";
import { type Body, count, flag, queryTags, required, tagsOf, text } from "./parameters.ts";
import { commandOf, instanceRequest, nameOf, snapshotKind, targetState } from "./requests.ts";
import type { Reply, Routes } from "./server.ts";
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
      const fields = await body();
      return [202, imageAnswer(images.create(required(text(fields, "name"), "name"), tagsOf(fields)))];
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
    "POST /volumes": async ({ body }) => {
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
    "POST /volumes/from-archive": async ({ query, stream }) => {
      const [name, sizeGb, id] = [query.get("name"), Number(query.get("size_gb")), query.get("id")];
      if (name === null || name === "") throw invalidRequest("name: the query has to have it");
      if (!Number.isInteger(sizeGb) || sizeGb < 1)
        throw invalidRequest("size_gb: the query has to have a whole number from 1 on");
      const request = { name, sizeGb, tags: queryTags(query), ...(id !== null && { id }) };
      return [201, volumeAnswer(await volumes.create(request, stream), instances)];
    },
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
    "POST /instances": async ({ body }) => reply(201, instances.create(instanceRequest(await body()))),
    "GET /instances/{id}": ({ id }) => reply(200, instances.get(id)),
    "DELETE /instances/{id}": async ({ id, query }) => {
      await instances.delete(instances.get(id), query.get("graceful_shutdown") === "true");
      return [204];
    },
    "POST /instances/{id}/start": async ({ id, body }) =>
      reply(200, instances.start(instances.get(id), commandOf(await body()))),
    "POST /instances/{id}/stop": ({ id }) => reply(200, instances.stop(instances.get(id))),
    "POST /instances/{id}/standby": ({ id }) => reply(200, instances.standby(instances.get(id))),
    "POST /instances/{id}/restore": ({ id }) => reply(200, instances.restore(instances.get(id))),
    "POST /instances/{id}/fork": async ({ id, body }) => reply(201, forked(instances, instances.get(id), await body())),
    "POST /instances/{id}/snapshots": async ({ id, body }) => {
      const fields = await body();
      const kind = snapshotKind(fields);
      const source = instances.get(id);
      const tags = tagsOf(fields);
      const name = text(fields, "name") === undefined ? "" : nameOf(fields);
      return [201, snapshotAnswer(await snapshots.create(source, kind, name, tags))];
    },
  };
}

/** A fork ends in the state that its source was in, unless the caller asks for another. */
async function forked(instances: Instances, source: InstanceRecord, fields: Body): Promise<InstanceRecord> {
  const name = nameOf(fields);
  const state = instances.machines.stateOf(source);
  const isRunning = state === "Running" || state === "Initializing";
  if (isRunning && !flag(fields, "from_running"))
    throw new ApiFailure(409, "conflict", `cannot fork from state ${state} (set from_running=true)`);
  demandForkable(source);
  const target = targetState(fields) ?? (isRunning ? "Running" : state);
  return instances.suspended(source, "failed to fork instance", (current) =>
    instances.fork(current, instances.machines.folderOf(current.id), name, target),
  );
}

function snapshotRoutes({ snapshots, instances }: Holdings): Routes {
  return {
    "GET /snapshots": ({ query }) => {
      const [name, kind, source] = [query.get("name"), query.get("kind"), query.get("source_instance_id")];
      const filter = {
        tags: queryTags(query),
        ...(name !== null && { name }),
        ...(kind !== null && { kind }),
        ...(source !== null && { sourceInstanceId: source }),
      };
      return [200, snapshots.list(filter).map(snapshotAnswer)];
    },
    "GET /snapshots/{id}": ({ id }) => [200, snapshotAnswer(snapshots.get(id))],
    "DELETE /snapshots/{id}": async ({ id }) => {
      await snapshots.delete(id);
      return [204];
    },
    "POST /snapshots/{id}/fork": async ({ id, body }) => {
      const fields = await body();
      const fork = await snapshots.fork(id, nameOf(fields), targetState(fields));
      return [201, instanceAnswer(fork, instances.machines)];
    },
  };
}
