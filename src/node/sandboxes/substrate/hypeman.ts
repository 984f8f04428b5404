import type { Hypeman } from "@onkernel/hypeman";
import { checkLimit, currentSignal, lasting, LONGEST_TIMER_MS, throwIfAborted, timeoutSignal } from "./abort.ts";
import { codeOf, ifAmbiguous, SandboxError, statusOf, substrateError } from "./errors.ts";
import {
  createBody,
  has,
  imageOf,
  ingressBody,
  ingressOf,
  instanceOf,
  type SdkInstance,
  snapshotOf,
  volumeOf,
} from "./hypeman-shapes.ts";
import { lastingFetch } from "./lasting-fetch.ts";
import type { SandboxSpec, Tags } from "./spec.ts";
import { traced } from "./tracing.ts";
import type {
  Capacity,
  DaemonFacts,
  Image,
  Ingress,
  Instance,
  InstanceParts,
  Snapshot,
  Volume,
  VolumeContent,
} from "./substrate.ts";

/**
 * The daemon answers a call that boots, suspends or copies an instance only when that is done, and it cancels every
 * call after a minute. This limit is longer, so that the daemon's own error is received.
 */
const DEFAULT_TIMEOUT_MS = 90_000;
/** The smallest size that the daemon accepts for a volume; the content is far smaller. */
const VOLUME_SIZE_GB = 1;
/** States that must be requested explicitly, because a listing without a state may lack instances in these states. */
const STATES_NOT_LISTED = ["Standby", "Stopped"] as const;

/** Address and credentials of the daemon. */
export interface HypemanOptions {
  /** URL of the daemon, without a user or password. Default: "http://localhost:4973". */
  readonly baseUrl?: string | undefined;
  readonly apiToken: string;
  /** Deadline of a call, including the body of its answer, in milliseconds. Infinity means no limit. Default: 90 s. */
  readonly timeoutMs?: number | undefined;
}

/**
 * Connects to the daemon through its official client. Rejects with SandboxError: INVALID_SPEC for an invalid `baseUrl`,
 * MISSING_PACKAGE if the client is not installed.
 */
export function connectHypeman(options: HypemanOptions): Promise<Substrate> {
  return HypemanSubstrate.connect(options);
}

/**
 * Throws SandboxError (INVALID_SPEC) unless the text is an http or https URL without a user and password. The message
 * does not quote the URL, because the URL may contain a password. Without this check, fetch would throw an error that
 * quotes it.
 *
 * @param name name of the option, for the error message
 */
export function checkBaseUrl(baseUrl: string, name = "baseUrl"): void {
  if (!URL.canParse(baseUrl) || !/^https?:$/.test(new URL(baseUrl).protocol))
    throw new SandboxError("INVALID_SPEC", `${name} requires a URL such as http://localhost:4973`);
  const { username, password } = new URL(baseUrl);
  if (username !== "" || password !== "") {
    const message = `${name} must not contain a user or password; the daemon only accepts a token`;
    throw new SandboxError("INVALID_SPEC", message);
  }
}

/**
 * Throws SandboxError (INVALID_SPEC) unless the token can be sent in an HTTP header. Without this check, fetch would
 * throw an error whose message contains the token.
 *
 * @param name name of the option, for the error message
 */
export function checkApiToken(apiToken: string, name = "apiToken"): void {
  const what =
    typeof (apiToken as unknown) !== "string"
      ? "is not text"
      : apiToken.trim() === ""
        ? "is empty"
        : /^[\x21-\x7e]+$/.test(apiToken.trim())
          ? undefined
          : "may contain only visible ASCII characters, without spaces and line breaks";
  if (what !== undefined) throw new SandboxError("INVALID_SPEC", `${name} ${what}`);
}

/**
 * The part of the substrate's API that sandboxes need. A program that uses another client of this API can implement
 * this interface.
 */
export type Substrate = Pick<HypemanSubstrate, keyof HypemanSubstrate>;

function isReading(method = "GET"): boolean {
  return method.toUpperCase() === "GET";
}

/**
 * The substrate's API, called through its official client. Every method rejects with SandboxError. The code
 * SUBSTRATE_UNAVAILABLE means that there was no answer, so it is not known whether the call took effect. Calls that
 * change something are never retried.
 */
class HypemanSubstrate {
  readonly #client: Hypeman;
  readonly #timeoutMs: number;

  private constructor(client: Hypeman, timeoutMs: number) {
    this.#client = client;
    this.#timeoutMs = timeoutMs;
  }

  static async connect(options: HypemanOptions): Promise<HypemanSubstrate> {
    const { baseUrl, apiToken, timeoutMs = DEFAULT_TIMEOUT_MS } = options;
    if (baseUrl !== undefined) checkBaseUrl(baseUrl);
    checkApiToken(apiToken);
    checkLimit(timeoutMs, "timeoutMs");
    let sdk;
    try {
      sdk = await import("@onkernel/hypeman");
    } catch (error) {
      const message = "the substrate's client is not installed: npm install @onkernel/hypeman";
      throw new SandboxError("MISSING_PACKAGE", message, error);
    }
    const client = new sdk.Hypeman({
      apiKey: apiToken.trim(),
      baseURL: baseUrl ?? null,
      timeout: Math.min(timeoutMs, LONGEST_TIMER_MS),
      // A call that only reads may be cancelled when this process ends. A call that changes something must not be
      // cancelled.
      fetch: traced((url, init) => (isReading(init?.method) ? fetch(url, init) : lastingFetch(url, init))),
      // Do not retry, because a repeated call could create two instances. If an answer is lost, the caller looks for
      // the outcome by name or tags.
      maxRetries: 0,
      // Without this setting, the client would write to the console of the program that uses this library.
      logLevel: "off",
    });
    return new HypemanSubstrate(client, timeoutMs);
  }

  /** Resolves if the daemon answers, even if it refuses the token. */
  async health(): Promise<void> {
    await this.#call((client, options) => client.health.check(options));
  }

  async facts(): Promise<DaemonFacts> {
    const facts = await this.#call((client, options) => client.capabilities.get(options)).catch((error: unknown) => {
      if (statusOf(error) !== 404) throw error;
    });
    if (facts === undefined) {
      // The API has /capabilities only in versions after 0.3.0. If /capabilities is missing, request /resources. This
      // request fails if the server is not an older daemon, or if the daemon does not accept the token.
      await this.capacity();
      return { version: "unknown", defaultHypervisor: undefined, features: undefined };
    }
    const { server, runtimes, default_runtime } = facts;
    const startable = runtimes.filter(({ available }) => available);
    return {
      version: server.version,
      apiVersion: server.api_version,
      defaultHypervisor: default_runtime.name,
      features: new Map(startable.map(({ name, features }) => [name, new Set(features)])),
    };
  }

  async capacity(): Promise<Capacity> {
    const { cpu, memory, disk } = await this.#call((client, options) => client.resources.get(options));
    return {
      vcpus: cpu.effective_limit,
      memoryBytes: memory.effective_limit,
      diskBytes: disk.effective_limit,
      used: { vcpus: cpu.allocated, memoryBytes: memory.allocated, diskBytes: disk.allocated },
    };
  }

  async images(): Promise<readonly Image[]> {
    return (await this.#call((client, options) => client.images.list({}, options))).map(imageOf);
  }

  /** Finds an image by its name (a repository with a tag or digest); undefined if there is none. */
  async image(name: string): Promise<Image | undefined> {
    const found = await this.#found((client, options) => client.images.get(name, options));
    return found && imageOf(found);
  }

  /** Returns undefined if there is no volume with that id. */
  async volume(id: string): Promise<Volume | undefined> {
    const found = await this.#found((client, options) => client.volumes.get(id, options));
    return found && volumeOf(found);
  }

  async volumes(tags: Tags): Promise<readonly Volume[]> {
    const volumes = await this.#call((client, options) => client.volumes.list({ tags }, options));
    return volumes.map(volumeOf).filter((volume) => has(volume.tags, tags));
  }

  async createVolume({ id, tags }: Omit<Volume, "createdMs">, content: VolumeContent): Promise<void> {
    const about = { id, name: id, size_gb: VOLUME_SIZE_GB, tags };
    if (content instanceof Uint8Array)
      await this.#change((client, options) => client.volumes.createFromArchive(content, about, options));
    else {
      // Posts to the path directly, because the declared types of the client's method do not accept streams.
      const headers = { "content-type": "application/gzip", "content-length": String(content.sizeBytes) };
      const body = ReadableStream.from(content.chunks);
      await this.#change((client, options) =>
        client.post("/volumes/from-archive", { body, query: about, headers, ...options }),
      );
    }
  }

  /** Deletes a volume. Resolves with false if an instance still uses it. Succeeds also if it does not exist. */
  async deleteVolume(id: string): Promise<boolean> {
    try {
      await this.#delete((client, options) => client.volumes.delete(id, options));
      return true;
    } catch (error) {
      if (statusOf(error) === 409) return false;
      throw error;
    }
  }

  /** Returns undefined if there is no instance with that id. */
  async instance(id: string): Promise<Instance | undefined> {
    const found = await this.#found((client, options) => client.instances.get(id, options));
    return found && instanceOf(found);
  }

  /** All instances with these tags, in any state. */
  async instances(tags: Tags): Promise<readonly Instance[]> {
    const queries = [{ tags }, ...STATES_NOT_LISTED.map((state) => ({ tags, state }))];
    const lists = await Promise.all(
      queries.map((query) => this.#call((client, options) => client.instances.list(query, options))),
    );
    const byId = new Map(lists.flat().map((instance) => [instance.id, instanceOf(instance)]));
    await this.#resolve(byId, lists);
    return [...byId.values()].filter((instance) => has(instance.tags, tags));
  }

  /**
   * Requests each instance that is listed more than once or in different states, to get its true state. An interrupted
   * fork of a snapshot leaves a record that has the id, name and tags of its source, but a state of its own (hypeman
   * 8853445, lib/instances/snapshot.go:415).
   */
  async #resolve(byId: Map<string, Instance>, lists: readonly (readonly SdkInstance[])[]): Promise<void> {
    const listed = new Map<string, { records: number; readonly states: Set<string> }>();
    for (const list of lists) {
      const own = new Map<string, number>();
      for (const { id, state } of list) {
        own.set(id, (own.get(id) ?? 0) + 1);
        const seen = listed.get(id) ?? { records: 0, states: new Set() };
        seen.states.add(state);
        listed.set(id, { ...seen, records: Math.max(seen.records, own.get(id) ?? 0) });
      }
    }
    const unclear = [...listed].filter(([, { records, states }]) => records > 1 || states.size > 1);
    await Promise.all(
      unclear.map(async ([id, { records }]) => {
        const found = (await this.instance(id).catch(ifAmbiguous)) ?? byId.get(id);
        if (found !== undefined) byId.set(id, { ...found, records });
      }),
    );
  }

  /** The last lines of the instance's console, oldest first; empty if it has no console. */
  async console(id: string, lines: number): Promise<readonly string[]> {
    const query = { tail: lines, follow: false, source: "app" } as const;
    const read = async (client: Hypeman, options: CallOptions): Promise<string[]> => {
      const found: string[] = [];
      for await (const line of await client.instances.logs(id, query, options)) found.push(line);
      return found;
    };
    return (await this.#found(read, ["not_found", "log_not_found"])) ?? [];
  }

  createInstance(spec: SandboxSpec, parts: InstanceParts): Promise<Instance> {
    return this.#instance((client, options) => client.instances.create(createBody(spec, parts), options));
  }

  /** Deletes an instance. Succeeds also if it does not exist. */
  async deleteInstance(id: string): Promise<void> {
    await this.#delete((client, options) => client.instances.delete(id, {}, options));
  }

  standby(id: string): Promise<Instance> {
    return this.#instance((client, options) => client.instances.standby(id, {}, options));
  }

  restore(id: string): Promise<Instance> {
    return this.#instance((client, options) => client.instances.restore(id, options));
  }

  stop(id: string): Promise<Instance> {
    return this.#instance((client, options) => client.instances.stop(id, options));
  }

  start(id: string): Promise<Instance> {
    return this.#instance((client, options) => client.instances.start(id, {}, options));
  }

  /** Forks an instance. The new instance runs. If the source is running, it is suspended during the fork. */
  fork(id: string, name: string): Promise<Instance> {
    const body = { name, from_running: true, target_state: "Running" } as const;
    return this.#instance((client, options) => client.instances.fork(id, body, options));
  }

  async snapshots(tags: Tags): Promise<readonly Snapshot[]> {
    const snapshots = await this.#call((client, options) => client.snapshots.list({ tags }, options));
    return snapshots.map(snapshotOf).filter((snapshot) => has(snapshot.tags, tags));
  }

  /** Takes a snapshot of a running instance. The instance is suspended until the snapshot is taken. */
  async createSnapshot(id: string, name: string, tags: Tags): Promise<Snapshot> {
    const body = { kind: "Standby", name, tags } as const;
    return snapshotOf(await this.#change((client, options) => client.instances.snapshots.create(id, body, options)));
  }

  /** Deletes a snapshot. Succeeds also if it does not exist. */
  async deleteSnapshot(id: string): Promise<void> {
    await this.#delete((client, options) => client.snapshots.delete(id, options));
  }

  /** Creates a running instance from a snapshot. */
  forkSnapshot(id: string, name: string): Promise<Instance> {
    const body = { name, target_state: "Running" } as const;
    return this.#instance((client, options) => client.snapshots.fork(id, body, options));
  }

  async ingresses(tags: Tags): Promise<readonly Ingress[]> {
    const ingresses = await this.#call((client, options) => client.ingresses.list({ tags }, options));
    return ingresses.map(ingressOf).filter((ingress) => has(ingress.tags, tags));
  }

  /** Creates an ingress. Its success does not mean that the proxy serves the rule yet. */
  async createIngress(ingress: Omit<Ingress, "id">): Promise<Ingress> {
    const body = ingressBody(ingress);
    return ingressOf(await this.#change((client, options) => client.ingresses.create(body, options)));
  }

  /** Deletes an ingress. Succeeds also if it does not exist. */
  async deleteIngress(id: string): Promise<void> {
    await this.#delete((client, options) => client.ingresses.delete(id, options));
  }

  /**
   * Makes a call with a deadline. The client's own timeout covers only the head of an answer, but this deadline also
   * covers a body that never ends. An abort of the current operation ends the call, too.
   */
  async #call<Answer>(call: Call<Answer>): Promise<Answer> {
    const late = timeoutSignal(this.#timeoutMs);
    const signal = currentSignal(late) ?? late;
    try {
      return await call(this.#client, { signal });
    } catch (error) {
      throwIfAborted();
      if (!late.aborted) throw substrateError(error, this.#client.baseURL);
      const message = `the daemon at ${this.#client.baseURL} gave no answer within ${this.#timeoutMs} ms`;
      throw new SandboxError("SUBSTRATE_UNAVAILABLE", message, error);
    }
  }

  /** Makes a call that changes something. The daemon completes it anyway, so an abort does not end it. */
  #change<Answer>(call: Call<Answer>): Promise<Answer> {
    return lasting(() => this.#call(call));
  }

  /** Makes a call that deletes an object. Succeeds also if the object does not exist. */
  async #delete(call: Call<unknown>): Promise<void> {
    await lasting(() => this.#found(call));
  }

  /**
   * Makes a call. Resolves with undefined if the daemon says that the object does not exist. Any other 404 is an error,
   * because it may come from another server, or from an older daemon that lacks the route.
   */
  async #found<Answer>(call: Call<Answer>, codes: readonly unknown[] = ["not_found"]): Promise<Answer | undefined> {
    try {
      return await this.#call(call);
    } catch (error) {
      if (statusOf(error) === 404 && codes.includes(codeOf(error))) return undefined;
      throw error;
    }
  }

  async #instance(call: Call<SdkInstance>): Promise<Instance> {
    return instanceOf(await this.#change(call));
  }
}

interface CallOptions {
  readonly signal: AbortSignal;
}
type Call<Answer> = (client: Hypeman, options: CallOptions) => Promise<Answer>;
