import type { Hypeman } from "@onkernel/hypeman";
import {
  capabilitiesAnswer,
  imageAnswer,
  ingressAnswer,
  instanceAnswer,
  resourcesAnswer,
  snapshotAnswer,
  volumeAnswer,
} from "./answers.ts";
import { ApiFailure, asInternal, invalidState, notFound } from "./failure.ts";
import type { Images } from "./images.ts";
import type { Ingresses } from "./ingresses.ts";
import type { InstanceRecord } from "./instance.ts";
import type { Instances } from "./instances.ts";
import { queryTags } from "./records.ts";
import type { Rules } from "./rules.ts";
import { Events, type Handler, type Reply, type Routes } from "./server.ts";
import type { Snapshots } from "./snapshots.ts";
import type { Volumes } from "./volumes.ts";

type SnapshotCreateParams = Hypeman.Instances.SnapshotCreateParams;

/** What the API is about. */
export interface Holdings {
  readonly images: Images;
  readonly volumes: Volumes;
  readonly instances: Instances;
  readonly snapshots: Snapshots;
  readonly ingresses: Ingresses;
  /** Version of the daemon. */
  readonly version: string;
  readonly rules: Rules;
}

/** The part of the substrate's API that sandboxes need. */
export function routesOf(holdings: Holdings): Routes {
  const { instances, version, rules } = holdings;
  return {
    "GET /health": () => [200, { status: "ok" }],
    "GET /capabilities": () => [200, capabilitiesAnswer(version)],
    "GET /resources": () => [200, resourcesAnswer(instances, rules.memoryBytes)],
    ...imageRoutes(holdings),
    ...volumeRoutes(holdings),
    ...instanceRoutes(holdings),
    ...snapshotRoutes(holdings),
    ...ingressRoutes(holdings),
  };
}

function imageRoutes({ images }: Holdings): Routes {
  return {
    "GET /images": () => [200, images.list().map(imageAnswer)],
    "GET /images/{name}": ({ id }) => {
      const image = images.get(id);
      // A tag refers to an image only once the image is ready (hypeman 8853445, lib/images/manager.go:512, :645-650).
      if (image.status !== "ready" && !id.includes("@")) throw notFound();
      return [200, imageAnswer(image)];
    },
  };
}

function volumeRoutes({ volumes, instances }: Holdings): Routes {
  return {
    "GET /volumes": ({ query }) => [
      200,
      volumes.list(queryTags(query)).map((volume) => volumeAnswer(volume, instances)),
    ],
    "POST /volumes/from-archive": failing("failed to create volume", async ({ query, stream }) => {
      const request = { id: query.get("id") ?? "", name: query.get("name") ?? "", tags: queryTags(query) };
      const volume = await volumes.create({ ...request, size_gb: Number(query.get("size_gb")) }, stream);
      return [201, volumeAnswer(volume, instances)];
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
    "POST /instances": failing("failed to create instance", async ({ body, signal }) =>
      reply(201, instances.create((await body()) as Hypeman.InstanceCreateParams, signal)),
    ),
    "GET /instances/{id}": ({ id }) => reply(200, instances.get(id)),
    // hypeman 8853445, cmd/api/api/instances.go:833-914; nothing is followed here.
    "GET /instances/{id}/logs": ({ id, query }) => {
      const vm = instances.machines.of(instances.get(id).id);
      return [200, new Events(vm.consoleTail(Number(query.get("tail") ?? 100)))];
    },
    "DELETE /instances/{id}": failing("failed to delete instance", async ({ id }) => {
      await instances.delete(instances.get(id));
      return [204];
    }),
    "POST /instances/{id}/start": failing("failed to start instance", ({ id }) =>
      reply(200, instances.start(instances.get(id))),
    ),
    "POST /instances/{id}/stop": failing("failed to stop instance", ({ id }) =>
      reply(200, instances.stop(instances.get(id))),
    ),
    "POST /instances/{id}/standby": failing("failed to standby instance", ({ id, signal }) =>
      reply(200, instances.standby(instances.get(id), signal)),
    ),
    "POST /instances/{id}/restore": failing("failed to restore instance", ({ id }) =>
      reply(200, instances.restore(instances.get(id))),
    ),
    "POST /instances/{id}/fork": failing("failed to fork instance", async ({ id, body, signal }) =>
      reply(201, forked(instances, instances.get(id), (await body()) as Hypeman.InstanceForkParams, signal)),
    ),
    "POST /instances/{id}/snapshots": failing("failed to create snapshot", async ({ id, body, signal }) => [
      201,
      snapshotAnswer(await snapshots.create(instances.get(id), (await body()) as SnapshotCreateParams, signal)),
    ]),
  };
}

/** A fork runs: no caller of ours asks for another state. */
async function forked(
  instances: Instances,
  source: InstanceRecord,
  { name, from_running }: Hypeman.InstanceForkParams,
  signal: AbortSignal,
): Promise<InstanceRecord> {
  const state = instances.machines.stateOf(source);
  const isRunning = state === "Running";
  if (isRunning ? from_running !== true : state !== "Stopped" && state !== "Standby")
    throw invalidState(`cannot fork from state ${state} (Stopped, Standby, or Running with from_running=true)`);
  return instances.suspended(source, signal, async (current) => {
    const files = instances.machines.directoryOf(current.id);
    const made = await instances.fork(current, files, { name, taken: "name_conflict" }, signal);
    if (isRunning) instances.rotateCid(current);
    return made;
  });
}

function snapshotRoutes({ snapshots, instances }: Holdings): Routes {
  return {
    "GET /snapshots": ({ query }) => [200, snapshots.list(queryTags(query)).map(snapshotAnswer)],
    "GET /snapshots/{id}": ({ id }) => [200, snapshotAnswer(snapshots.get(id))],
    "DELETE /snapshots/{id}": async ({ id }) => {
      await snapshots.delete(id);
      return [204];
    },
    "POST /snapshots/{id}/fork": failing("failed to fork snapshot", async ({ id, body, signal }) => {
      const { name } = (await body()) as Hypeman.SnapshotForkParams;
      return [201, instanceAnswer(await snapshots.fork(id, name, signal), instances.machines)];
    }),
  };
}

function ingressRoutes({ ingresses }: Holdings): Routes {
  return {
    "GET /ingresses": ({ query }) => [200, ingresses.list(queryTags(query)).map(ingressAnswer)],
    "POST /ingresses": failing("failed to create ingress", async ({ body }) => [
      201,
      ingressAnswer(await ingresses.create((await body()) as Hypeman.IngressCreateParams)),
    ]),
    "DELETE /ingresses/{id}": failing("failed to delete ingress", async ({ id }) => {
      await ingresses.delete(ingresses.get(id));
      return [204];
    }),
  };
}

/**
 * A handler whose failures other than refusals become an internal error with these words. So does a cancelled call,
 * whatever it has done by then.
 */
function failing(words: string, handle: Handler): Handler {
  return async (call) => {
    const { signal } = call;
    const { promise: cancelled, reject } = Promise.withResolvers<never>();
    const cancel = (): void => reject(new Error("the call took too long, and is cancelled"));
    signal.addEventListener("abort", cancel, { once: true });
    try {
      return await Promise.race([handle(call), cancelled]);
    } catch (error) {
      throw asInternal(words, error);
    } finally {
      signal.removeEventListener("abort", cancel);
    }
  };
}
