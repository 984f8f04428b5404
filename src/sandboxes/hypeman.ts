import type { Hypeman } from "@onkernel/hypeman";
import { messageOf } from "../domain/index.ts";
import { SandboxError } from "./errors.ts";
import {
  type DaemonFacts,
  type Image,
  type Instance,
  type NewInstance,
  type Snapshot,
  type Substrate,
  SubstrateFailure,
  type Tags,
  type Volume,
} from "./substrate.ts";

/** The daemon answers calls that boot, suspend or copy only when that is done, within a minute. */
const DEFAULT_TIMEOUT_MS = 90_000;
/** The least size of a volume; the content is far smaller. */
const VOLUME_SIZE_GB = 1;
/** A listing without a state may lack instances in these. */
const STATES_NOT_LISTED = ["Standby", "Stopped"] as const;
/** Longest excerpt of an answer in a message. */
const EXCERPT_CHARACTERS = 300;

/** How the daemon is reached. */
export interface HypemanOptions {
  /** Such as "http://localhost:4973", which is the default. */
  readonly baseUrl?: string | undefined;
  /** The bearer token. */
  readonly apiToken: string;
  /** Longest wait for any one answer, its body included, in milliseconds. Default: 90 s. */
  readonly timeoutMs?: number | undefined;
}

/**
 * The substrate's API over its official client, the package @onkernel/hypeman, which only this function loads. Rejects with
 * SandboxError (MISSING_PACKAGE) where that is not installed.
 */
export async function connectHypeman({
  baseUrl,
  apiToken,
  timeoutMs = DEFAULT_TIMEOUT_MS,
}: HypemanOptions): Promise<Substrate> {
  let sdk;
  try {
    sdk = await import("@onkernel/hypeman");
  } catch (error) {
    const message = "the substrate's client is not installed: npm install @onkernel/hypeman";
    throw new SandboxError("MISSING_PACKAGE", message, error);
  }
  const client = new sdk.Hypeman({
    apiKey: apiToken,
    baseURL: baseUrl ?? null,
    timeout: timeoutMs,
    // A repeated call could make two instances; a caller whose answer is lost looks the outcome up by name.
    maxRetries: 0,
    // The client would write to the console of the program that uses it.
    logLevel: "off",
  });
  return new HypemanSubstrate(client, timeoutMs);
}

class HypemanSubstrate implements Substrate {
  readonly #client: Hypeman;
  readonly #timeoutMs: number;

  constructor(client: Hypeman, timeoutMs: number) {
    this.#client = client;
    this.#timeoutMs = timeoutMs;
  }

  async facts(): Promise<DaemonFacts> {
    const facts = await orUndefined(this.#call((options) => this.#client.capabilities.get(options)));
    if (facts === undefined) {
      throw new SandboxError("CAPABILITY_MISSING", "the daemon tells no capabilities; it wants API 0.3.0 or later");
    }
    const { server, runtimes, default_runtime } = facts;
    const startable = runtimes.filter(({ available }) => available);
    return {
      version: server.version,
      defaultHypervisor: default_runtime.name,
      features: new Map(startable.map(({ name, features }) => [name, new Set(features)])),
    };
  }

  images(): Promise<readonly Image[]> {
    return this.#call((options) => this.#client.images.list({}, options));
  }

  image(name: string): Promise<Image | undefined> {
    return orUndefined(this.#call((options) => this.#client.images.get(name, options)));
  }

  async volume(id: string): Promise<Volume | undefined> {
    const found = await orUndefined(this.#call((options) => this.#client.volumes.get(id, options)));
    return found && volumeOf(found);
  }

  async volumes(tags: Tags): Promise<readonly Volume[]> {
    const volumes = await this.#call((options) => this.#client.volumes.list({ tags }, options));
    return volumes.map(volumeOf).filter((volume) => has(volume.tags, tags));
  }

  async createVolume({ id, tags }: Volume, archive: Uint8Array): Promise<void> {
    const about = { id, name: id, size_gb: VOLUME_SIZE_GB, tags };
    await this.#call((options) => this.#client.volumes.createFromArchive(archive, about, options));
  }

  async deleteVolume(id: string): Promise<boolean> {
    try {
      await orUndefined(this.#call((options) => this.#client.volumes.delete(id, options)));
      return true;
    } catch (error) {
      if (error instanceof SubstrateFailure && error.status === 409) return false;
      throw error;
    }
  }

  async instance(id: string): Promise<Instance | undefined> {
    const found = await orUndefined(this.#call((options) => this.#client.instances.get(id, options)));
    return found && instanceOf(found);
  }

  async instances(tags: Tags): Promise<readonly Instance[]> {
    const queries = [{ tags }, ...STATES_NOT_LISTED.map((state) => ({ tags, state }))];
    const lists = await Promise.all(
      queries.map((query) => this.#call((options) => this.#client.instances.list(query, options))),
    );
    const byId = new Map(lists.flat().map((instance) => [instance.id, instanceOf(instance)]));
    return [...byId.values()].filter((instance) => has(instance.tags, tags));
  }

  async createInstance(instance: NewInstance): Promise<Instance> {
    const body = createBody(instance);
    return instanceOf(await this.#call((options) => this.#client.instances.create(body, options)));
  }

  async deleteInstance(id: string): Promise<void> {
    await orUndefined(this.#call((options) => this.#client.instances.delete(id, {}, options)));
  }

  async standby(id: string): Promise<void> {
    await this.#call((options) => this.#client.instances.standby(id, {}, options));
  }

  async restore(id: string): Promise<void> {
    await this.#call((options) => this.#client.instances.restore(id, options));
  }

  async stop(id: string): Promise<void> {
    await this.#call((options) => this.#client.instances.stop(id, options));
  }

  async start(id: string): Promise<void> {
    await this.#call((options) => this.#client.instances.start(id, {}, options));
  }

  async fork(id: string, name: string): Promise<Instance> {
    const body = { name, from_running: true, target_state: "Running" } as const;
    return instanceOf(await this.#call((options) => this.#client.instances.fork(id, body, options)));
  }

  async snapshots(tags: Tags): Promise<readonly Snapshot[]> {
    const snapshots = await this.#call((options) => this.#client.snapshots.list({ tags }, options));
    return snapshots.map(snapshotOf).filter((snapshot) => has(snapshot.tags, tags));
  }

  async createSnapshot(id: string, name: string, tags: Tags): Promise<Snapshot> {
    const body = { kind: "Standby", name, tags } as const;
    return snapshotOf(await this.#call((options) => this.#client.instances.snapshots.create(id, body, options)));
  }

  async deleteSnapshot(id: string): Promise<void> {
    await orUndefined(this.#call((options) => this.#client.snapshots.delete(id, options)));
  }

  async forkSnapshot(id: string, name: string): Promise<Instance> {
    const body = { name, target_state: "Running" } as const;
    return instanceOf(await this.#call((options) => this.#client.snapshots.fork(id, body, options)));
  }

  /** The client's own timeout covers only the head of an answer; the signal covers a body that never ends, too. */
  async #call<Answer>(call: (options: { signal: AbortSignal }) => Promise<Answer>): Promise<Answer> {
    const signal = AbortSignal.timeout(this.#timeoutMs);
    try {
      return await call({ signal });
    } catch (error) {
      if (!signal.aborted) throw failureOf(error);
      throw new SubstrateFailure(`the daemon gave no answer within ${this.#timeoutMs} ms`, error);
    }
  }
}

type SdkInstance = Hypeman.Instance;

function createBody(instance: NewInstance): Hypeman.InstanceCreateParams {
  const { name, image, entrypoint, env, tags, hypervisor, vcpus, memory, overlaySize } = instance;
  const { bandwidthDownload, bandwidthUpload } = instance;
  return {
    name,
    image,
    entrypoint: [...entrypoint],
    cmd: [],
    env,
    tags,
    // A standby waits for the substrate's own agent.
    skip_guest_agent: false,
    network: {
      enabled: true,
      ...(bandwidthDownload !== undefined && { bandwidth_download: bandwidthDownload }),
      ...(bandwidthUpload !== undefined && { bandwidth_upload: bandwidthUpload }),
    },
    volumes: instance.volumes.map((mount) => ({
      volume_id: mount.volumeId,
      mount_path: mount.mountPath,
      // The substrate forks no instance with a writable volume.
      readonly: true,
      ...(mount.overlaySize !== undefined && { overlay: true, overlay_size: mount.overlaySize }),
    })),
    ...(hypervisor !== undefined && { hypervisor: hypervisor as NonNullable<SdkInstance["hypervisor"]> }),
    ...(vcpus !== undefined && { vcpus }),
    ...(memory !== undefined && { size: memory }),
    ...(overlaySize !== undefined && { overlay_size: overlaySize }),
  };
}

function instanceOf(instance: SdkInstance): Instance {
  const { id, name, state, network, hypervisor, tags = {}, exit_code: exitCode, exit_message: exitMessage } = instance;
  return {
    id,
    name,
    state,
    ip: network?.ip ?? undefined,
    hypervisor,
    tags,
    exitCode: exitCode ?? undefined,
    exitMessage,
  };
}

function volumeOf({ id, tags = {} }: Hypeman.Volume): Volume {
  return { id, tags };
}

function snapshotOf({ id, name, tags = {} }: Hypeman.Snapshot): Snapshot {
  return { id, name: name ?? undefined, tags };
}

/** Filters once more: a daemon that does not know the filter answers with everything. */
function has(tags: Tags, wanted: Tags): boolean {
  return Object.entries(wanted).every(([key, value]) => tags[key] === value);
}

async function orUndefined<Answer>(answer: Promise<Answer>): Promise<Answer | undefined> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof SubstrateFailure && error.status === 404) return undefined;
    throw error;
  }
}

/** Recognizes the client's errors by their shape. An error's body that is no JSON is itself the message. */
function failureOf(error: unknown): SubstrateFailure {
  const { status, error: body } = error as { readonly status?: unknown; readonly error?: unknown };
  if (typeof status !== "number") {
    const { cause } = error as { readonly cause?: unknown };
    const detail = cause === undefined ? messageOf(error) : `${messageOf(error)} ${causeOf(cause)}`;
    return new SubstrateFailure(`the daemon cannot be reached or broke off: ${detail}`, error);
  }
  const { code, message } = (typeof body === "object" && body !== null ? body : {}) as Record<string, unknown>;
  const text = typeof message === "string" && message !== "" ? message : messageOf(error);
  const excerpt = text.length > EXCERPT_CHARACTERS ? `${text.slice(0, EXCERPT_CHARACTERS)}…` : text;
  const known = typeof code === "string" ? code : undefined;
  const answer = known === undefined ? String(status) : `${status} ${known}`;
  return new SubstrateFailure(`the daemon answered ${answer}: ${excerpt}`, error, status, known);
}

/** The reason below fetch's "fetch failed", such as ECONNREFUSED. */
function causeOf(cause: unknown): string {
  const inner = cause instanceof Error && cause.cause !== undefined ? cause.cause : cause;
  const { code } = inner as { readonly code?: unknown };
  return typeof code === "string" ? `(${code})` : `(${messageOf(inner)})`;
}
