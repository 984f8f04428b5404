import { execFileSync } from "node:child_process";
import { randomBytes, randomInt } from "node:crypto";
import { once } from "node:events";
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { freePort } from "../../../scripts/machine/free-port.ts";
import { ApiFailure, insufficientResources, invalidState, notFound } from "../../../scripts/substrate/failure.ts";
import { Ingresses } from "../../../scripts/substrate/ingresses.ts";
import { Proxy, type Resolve } from "../../../scripts/substrate/proxy.ts";
import { hasTags, ingressRequest, queryTags } from "../../../scripts/substrate/requests.ts";
import { SOURCES_COMMAND } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { ProcessInstance } from "./instance.ts";

type Tags = Readonly<Record<string, string>>;
type Body = Readonly<Record<string, unknown>>;

interface ImageRecord {
  readonly digest: string;
  readonly status: string;
  readonly entrypoint?: readonly string[];
  readonly cmd?: readonly string[];
  readonly hasShell?: boolean;
  /** What its kernel prints about an init that it cannot start. */
  readonly panic?: string;
  readonly created_at?: string;
  readonly size_bytes?: number;
  readonly queue_position?: number;
  readonly error?: string;
}

interface VolumeRecord {
  readonly id: string;
  readonly name: string;
  readonly tags: Tags;
  created_at: string;
  readonly folder: string;
}

interface InstanceRecord {
  readonly id: string;
  readonly name: string;
  readonly body: Body;
  state: "Initializing" | "Running" | "Paused" | "Unknown" | "Standby" | "Stopped";
  readonly process: ProcessInstance;
  /** A fork is not attached to its volumes. */
  readonly isFork: boolean;
  /** Number of its vsock device. */
  cid: string;
}

interface SnapshotRecord {
  readonly id: string;
  readonly name: string;
  readonly tags: Tags;
  readonly source: InstanceRecord;
  readonly folder: string;
}

/** An answer in place of an action: a status and a text, or the end of the connection. */
type Fault = { readonly status: number; readonly text: string } | "cut";

/** Called with "METHOD /path" (ids as ":id") before a request is carried out and before it is answered. */
type Interference = (request: string, when: "before" | "after") => Fault | undefined | Promise<Fault | undefined>;

export const IMAGE = "debian:12";
/** What the daemon answers to most that goes wrong. */
export const INTERNAL: Fault = { status: 500, text: '{"code":"internal_error","message":"failed"}' };
const API_TOKEN = "a-token-of-the-daemon";

/**
 * The substrate's API over real agents in processes of their own. The official client talks to it, so that no code of
 * ours decides the requests.
 */
export class HttpSubstrate implements AsyncDisposable {
  readonly apiToken: string = API_TOKEN;
  readonly agentArchive: string;
  readonly images: Map<string, ImageRecord> = new Map([
    [
      IMAGE,
      {
        digest: `sha256:${"1".repeat(64)}`,
        status: "ready",
        entrypoint: ["/docker-entrypoint.sh"],
        cmd: ["serve", "--port=80"],
      },
    ],
  ]);
  readonly volumes: Map<string, VolumeRecord> = new Map();
  readonly instances: Map<string, InstanceRecord> = new Map();
  readonly snapshots: Map<string, SnapshotRecord> = new Map();
  /** Those of the development substrate, with its rules and its proxy. */
  readonly ingresses: Ingresses;
  readonly #proxy: Proxy | undefined;
  /** Requests so far, as "METHOD /path" with ":id" for ids. */
  readonly requests: string[] = [];
  /** Bodies of creations, as received. */
  readonly created: Body[] = [];
  version = "1a2b3c4";
  /** The hypervisor that it can start. */
  hypervisor: string = "qemu";
  features: readonly string[] = ["snapshots", "standby", "fork"];
  /** As API 0.2.0, which has no tags of instances. */
  dropsTags = false;
  /** False: as a daemon of API 0.3.0 before August 2026. */
  hasCapabilities = true;
  forksCannotReseed = false;
  /** The scope that the token lacks: then nothing that changes anything is done. */
  lacksScope: string | undefined;
  /** Two machines with one vsock number cannot run: a fork of a snapshot or sleeper has its origin's. */
  hasQemuForks = false;
  /** Number of instances that have room at a time. */
  room: number = Infinity;
  /** Operations during which the daemon cancels its own call, at 60 s: a standby leaves Paused then. */
  readonly cancelled: Set<string> = new Set();
  interfere: Interference = () => undefined;
  readonly #folder: string;
  readonly #server = createServer((request, response) => void this.#serve(request, response));
  readonly #agentPort: number;
  #port = 0;
  #count = 0;
  /** A network of this test's own. */
  readonly #network = `127.${randomInt(64, 128)}.${randomInt(1, 255)}`;

  private constructor(folder: string, agentPort: number, hasProxy: boolean) {
    this.#folder = folder;
    this.#agentPort = agentPort;
    this.#proxy = hasProxy ? new Proxy(this.#upstream, () => undefined) : undefined;
    this.ingresses = new Ingresses(join(folder, "ingresses"), (name) => this.#nameOf(name), this.#proxy);
    this.agentArchive = join(folder, "guest-agent.tar.gz");
    const bundle = join(folder, "bundle/guest-agent-test");
    mkdirSync(bundle, { recursive: true });
    const command = SOURCES_COMMAND.map((word) => `'${word}'`).join(" ");
    writeFileSync(join(bundle, "guest-agent"), `#!/bin/sh\nexec ${command} "$@"\n`);
    chmodSync(join(bundle, "guest-agent"), 0o755);
    execFileSync("tar", ["-czf", this.agentArchive, "-C", join(folder, "bundle"), "guest-agent-test"]);
  }

  /** @param hasProxy false: ingresses are accepted, and nothing serves them */
  static async start(hasProxy = true): Promise<HttpSubstrate> {
    const substrate = new HttpSubstrate(mkdtempSync(join(tmpdir(), "http-substrate-")), await freePort(), hasProxy);
    await substrate.listen();
    return substrate;
  }

  get baseUrl(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  get agentPort(): number {
    return this.#agentPort;
  }

  /** Folder for the test's node; removed with the substrate. */
  get stateFolder(): string {
    return join(this.#folder, "state");
  }

  async listen(): Promise<void> {
    this.#server.listen(this.#port, "127.0.0.1");
    await once(this.#server, "listening");
    this.#port = (this.#server.address() as AddressInfo).port;
  }

  /** Answers those requests so, instead of carrying them out or afterwards, until `interfere` is set anew. */
  fail(requests: string | RegExp, fault: Fault, moment: "before" | "after" = "before"): void {
    const isMeant = (request: string): boolean =>
      typeof requests === "string" ? request === requests : requests.test(request);
    this.interfere = (request, when) => (when === moment && isMeant(request) ? fault : undefined);
  }

  /** Holds the first of those requests before it is carried out; `done` resolves when that is. */
  hold(requests: string): {
    readonly begun: Promise<void>;
    readonly release: () => void;
    readonly done: Promise<void>;
  } {
    const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
    const { promise: over, resolve: release } = Promise.withResolvers<void>();
    const { promise: done, resolve: finish } = Promise.withResolvers<void>();
    let isFirst = true;
    this.interfere = async (request, when) => {
      if (request !== requests) return undefined;
      if (when === "after") finish();
      else if (isFirst) {
        isFirst = false;
        begin();
        await over;
      }
      return undefined;
    };
    return { begun, release, done };
  }

  /** Stops the daemon; its instances stay. */
  async shut(): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, "close");
  }

  /** Names and ids of everything there, except the agent's volume, which all share. */
  left(): string[] {
    return [
      ...[...this.instances.values()].map(({ name }) => `instance ${name}`),
      ...[...this.snapshots.values()].map(({ name }) => `snapshot ${name}`),
      ...[...this.volumes.values()]
        .filter(({ tags }) => tags["svc.agent"] === undefined)
        .map(({ id }) => `volume ${id}`),
      ...this.ingresses.list({}).map(({ rules }) => `ingress ${rules[0]?.match.hostname}`),
    ];
  }

  /** The one instance of that name. */
  named(name: string): InstanceRecord {
    const found = [...this.instances.values()].find((instance) => instance.name === name);
    if (found === undefined) throw new Error(`no instance ${name}`);
    return found;
  }

  /** Resolves once its console has these words. */
  async said(name: string, words: RegExp): Promise<void> {
    await until(() => words.test(this.named(name).process.console), `${name} has said ${String(words)}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#server.listening) await this.shut();
    await this.#proxy?.[Symbol.asyncDispose]();
    await Promise.all([...this.instances.values()].map(({ process }) => process.end()));
    rmSync(this.#folder, { recursive: true, force: true });
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? "/", "http://substrate");
    const path = url.pathname.split("/").slice(1).map(decodeURIComponent);
    const [, id = ""] = path;
    const label = `${request.method} /${path.map((part, index) => (index === 1 && part !== "from-archive" ? ":id" : part)).join("/")}`;
    const send = (status: number, answer: unknown): void => {
      const text = label.endsWith("/logs") ? "text/event-stream" : "text/plain";
      response.writeHead(status, { "content-type": typeof answer === "string" ? text : "application/json" });
      response.end(typeof answer === "string" ? answer : JSON.stringify(answer));
    };
    const fail = (fault: Fault): void => {
      if (fault === "cut") request.socket.destroy();
      else send(fault.status, fault.text);
    };
    try {
      const content = await buffer(request);
      if (request.headers.authorization !== `Bearer ${API_TOKEN}`) throw new ApiFailure(401, "unauthorized", "no");
      this.requests.push(label);
      // lib/scopes/middleware.go:39-43.
      if (this.lacksScope !== undefined && request.method === "POST")
        throw new ApiFailure(403, "Forbidden", `missing required scope: ${this.lacksScope}`);
      const before = await this.interfere(label, "before");
      if (before !== undefined) {
        fail(before);
        return;
      }
      const body = label.includes("from-archive") ? {} : (JSON.parse(content.toString() || "{}") as Body);
      const [status, answer] = await this.#answer(label, id, url.searchParams, body, content);
      const after = await this.interfere(label, "after");
      if (after === undefined) send(status, answer);
      else fail(after);
    } catch (error) {
      const isRefusal = error instanceof ApiFailure;
      const [status, code] = isRefusal ? [error.status, error.code] : [500, "internal_error"];
      send(status, { code, message: isRefusal ? error.message : "failed" });
    }
  }

  async #answer(
    label: string,
    id: string,
    query: URLSearchParams,
    body: Body,
    content: Buffer,
  ): Promise<readonly [status: number, answer: unknown]> {
    const tags = queryTags(query);
    switch (label) {
      case "GET /health":
        return [200, { status: "ok" }];
      case "GET /capabilities":
        return this.hasCapabilities ? [200, this.#capabilities()] : [404, "404 page not found"];
      case "GET /resources":
        return [200, resources()];
      case "GET /images":
        return [200, [...this.images].map(([name, image]) => ({ name, ...image }))];
      case "GET /images/:id":
        return [200, { name: id, ...known(this.images.get(id)) }];
      case "GET /volumes":
        return [200, [...this.volumes.values()].filter((volume) => hasTags(volume.tags, tags))];
      case "GET /volumes/:id":
        return [200, known(this.volumes.get(id))];
      case "POST /volumes/from-archive":
        return [201, this.#addVolume(query, tags, content)];
      case "DELETE /volumes/:id":
        return [204, this.#deleteVolume(id)];
      case "GET /instances":
        return [200, this.#list(query.get("state"), tags)];
      case "POST /instances":
        return [201, await this.#create(body)];
      case "GET /instances/:id":
        return [200, told(known(this.instances.get(id)))];
      case "GET /instances/:id/logs":
        return [200, events(known(this.instances.get(id)).process.console, Number(query.get("tail") ?? 100))];
      case "DELETE /instances/:id":
        return [204, await this.#deleteInstance(id)];
      case "GET /ingresses":
        return [200, this.ingresses.list(tags)];
      case "POST /ingresses":
        return [201, await this.ingresses.create(ingressRequest(body))];
      case "DELETE /ingresses/:id":
        await this.ingresses.delete(this.ingresses.get(id));
        return [204, ""];
      case "GET /snapshots":
        return [200, [...this.snapshots.values()].filter((each) => hasTags(each.tags, tags)).map(toldSnapshot)];
      case "DELETE /snapshots/:id":
        known(this.snapshots.get(id));
        this.snapshots.delete(id);
        return [204, ""];
      case "POST /snapshots/:id/fork": {
        const { source, folder } = known(this.snapshots.get(id));
        return [201, told(await this.#fork(source, folder, body))];
      }
      default:
        return [200, await this.#change(label, known(this.instances.get(id)), body)];
    }
  }

  #nameOf(reference: string): string {
    const found = this.instances.get(reference) ?? [...this.instances.values()].find(({ name }) => name === reference);
    return known(found).name;
  }

  /** A guest's servers listen in this host's network, at the guest's address too if they listen on all. */
  readonly #upstream: Resolve = async (name, port) => {
    const instance = [...this.instances.values()].find((each) => each.name === name);
    if (instance === undefined) return undefined;
    return stateOf(instance) === "Running" ? { host: instance.process.machine.ip, port } : "unreachable";
  };

  #capabilities(): object {
    return {
      server: { api_version: "0.3.0", version: this.version },
      default_runtime: { name: this.hypervisor, available: true },
      runtimes: [
        { name: this.hypervisor, available: true, features: this.features },
        { name: "vz", available: false, features: [] },
      ],
    };
  }

  #addVolume(query: URLSearchParams, tags: Tags, content: Buffer): VolumeRecord {
    const id = query.get("id") ?? "";
    if (this.volumes.has(id)) throw new ApiFailure(409, "already_exists", "volume with this ID already exists");
    const folder = join(this.#folder, "volumes", id);
    mkdirSync(folder, { recursive: true });
    execFileSync("tar", ["-xzf", "-", "-C", folder, "--no-same-owner"], { input: content });
    const volume = { id, name: query.get("name") ?? "", tags, created_at: new Date().toISOString(), folder };
    this.volumes.set(id, volume);
    return volume;
  }

  #deleteVolume(id: string): string {
    known(this.volumes.get(id));
    // lib/instances/create.go:444 is the only one that attaches: a fork's volume can be deleted under it.
    const isAttached = [...this.instances.values()].some(
      ({ body, isFork }) => !isFork && mountsOf(body).some((mount) => mount.volume_id === id),
    );
    if (isAttached) throw new ApiFailure(409, "volume_in_use", `volume ${id} is attached`);
    this.volumes.delete(id);
    return "";
  }

  /** A listing has sleepers only if it asks for them. */
  #list(state: string | null, tags: Tags): object[] {
    return [...this.instances.values()]
      .filter((instance) => (state === null ? stateOf(instance) !== "Standby" : stateOf(instance) === state))
      .map(told)
      .filter((instance) => hasTags(instance.tags, tags));
  }

  async #create(body: Body): Promise<object> {
    this.created.push(body);
    const image = this.images.get(String(body["image"]));
    if (image?.status !== "ready") throw new ApiFailure(400, "image_not_ready", "image is not ready");
    const isTaken = [...this.instances.values()].some(({ name }) => name === body["name"]);
    if (isTaken) throw new ApiFailure(400, "name_conflict", "the name is taken");
    const { tags: _tags, ...older } = body;
    return told(await this.#start(this.dropsTags ? older : body, undefined));
  }

  /** lib/instances/create.go:219-222, restore.go:85-88; answers: cmd/api/api/instances.go:361-365 and 644-648. */
  #admit(id: string, cid: string): void {
    const running = [...this.instances.values()].filter((each) => each.id !== id && stateOf(each) === "Running");
    if (running.length >= this.room) throw insufficientResources("memory");
    // lib/instances/snapshot.go:443, lib/hypervisor/qemu/diagnostics.go:22.
    if (this.hasQemuForks && running.some((each) => each.cid === cid)) throw new Error("unable to set guest cid");
  }

  async #start(body: Body, files: string | undefined, sourceCid?: string): Promise<InstanceRecord> {
    const isFork = files !== undefined;
    const id = randomBytes(8).toString("hex");
    const cid = sourceCid ?? id;
    this.#admit(id, cid);
    const folder = join(this.#folder, "instances", id);
    mkdirSync(folder, { recursive: true });
    if (files !== undefined) cpSync(files, folder, { recursive: true, filter: (path) => !path.endsWith("/console") });
    this.#count += 1;
    const machine = new ProcessInstance({
      folder,
      entrypoint: [...this.#wordsOf(body, "entrypoint"), ...this.#wordsOf(body, "cmd")],
      env: body["env"] as Tags,
      mounts: mountsOf(body).map(({ mount_path: path, volume_id: volume, overlay }) => {
        const found = this.volumes.get(volume);
        // A bare 500 (lib/instances/create.go, lib/volumes/manager.go).
        if (found === undefined) throw new Error("volume not found");
        return { path, source: found.folder, isWritable: overlay === true };
      }),
      ip: `${this.#network}.${this.#count}`,
      agentPort: this.#agentPort,
      cannotReseed: isFork && this.forksCannotReseed,
    });
    const instance: InstanceRecord = {
      id,
      name: String(body["name"]),
      body,
      state: "Running",
      process: machine,
      isFork,
      cid,
    };
    this.instances.set(id, instance);
    const image = this.images.get(String(body["image"]));
    if (image?.panic !== undefined) {
      machine.say(`${image.panic}\n`);
      instance.state = "Initializing";
    } else if (image?.hasShell === false) {
      // lib/system/init/mode_exec.go:124-141, logger.go:55: then its kernel panics and halts, and the VMM goes on.
      const words = "failed to start entrypoint: fork/exec /bin/sh: no such file or directory";
      machine.say(`2026-11-22T12:00:00Z [ERROR] [hypeman-init:entrypoint] ${words}\n`);
      instance.state = "Initializing";
    } else await machine.start();
    return instance;
  }

  /** An empty list means the image's, too (hypeman 5d9eff0, lib/instances/configdisk.go:53-60). */
  #wordsOf(body: Body, field: "entrypoint" | "cmd"): readonly string[] {
    const own = (body[field] ?? []) as readonly string[];
    return own.length > 0 ? own : (this.images.get(String(body["image"]))?.[field] ?? []);
  }

  /** A second instance with the first one's files and credentials: a fork before it has its own. */
  #fork(source: InstanceRecord, files: string, body: Body): Promise<InstanceRecord> {
    return this.#start({ ...source.body, name: body["name"] }, files, source.cid);
  }

  async #deleteInstance(id: string): Promise<string> {
    const { process } = known(this.instances.get(id));
    await process.end();
    this.instances.delete(id);
    return "";
  }

  async #change(label: string, instance: InstanceRecord, body: Body): Promise<object> {
    const { process } = instance;
    switch (label) {
      case "POST /instances/:id/standby":
        // lib/instances/standby.go:53.
        if (stateOf(instance) !== "Running") throw invalidState(`cannot standby from state ${stateOf(instance)}`);
        await process.suspend();
        if (this.cancelled.has("standby")) {
          // lib/instances/standby.go:163-168: it is resumed by a context that is over.
          instance.state = "Paused";
          throw new Error("context deadline exceeded");
        }
        instance.state = "Standby";
        return told(instance);
      case "POST /instances/:id/restore":
        if (stateOf(instance) !== "Standby") throw invalidState(`cannot restore from state ${stateOf(instance)}`);
        this.#admit(instance.id, instance.cid);
        await process.continue();
        instance.state = "Running";
        return told(instance);
      case "POST /instances/:id/stop":
        // lib/instances/stop.go: "cannot stop from state …, must be Running or Initializing".
        if (!["Running", "Initializing"].includes(stateOf(instance)))
          throw invalidState(`cannot stop from state ${stateOf(instance)}`);
        await process.stop();
        instance.state = "Stopped";
        return told(instance);
      case "POST /instances/:id/start":
        await process.start();
        instance.state = "Running";
        return told(instance);
      case "POST /instances/:id/fork":
        return this.#whileSuspended(instance, async () => {
          const isRotated = instance.process.isRunning && body["from_running"] === true;
          const made = await this.#fork(instance, process.machine.folder, body);
          // lib/instances/fork.go:72: a source that ran gets another number.
          if (isRotated) instance.cid = randomBytes(8).toString("hex");
          return told(made);
        });
      case "POST /instances/:id/snapshots":
        return this.#snapshot(instance, body);
      default:
        throw new ApiFailure(404, "not_found", `no route ${label}`);
    }
  }

  /**
   * A source that runs is suspended, and restored afterwards. Without room it stays asleep, although a fork may run by
   * then (lib/instances/fork.go:96-103).
   */
  async #whileSuspended(instance: InstanceRecord, action: () => Promise<object>): Promise<object> {
    if (instance.state === "Standby") return action();
    // lib/instances/fork.go:116-123, snapshot.go:120.
    if (stateOf(instance) !== "Running") throw invalidState(`cannot be suspended from state ${stateOf(instance)}`);
    await instance.process.suspend();
    instance.state = "Standby";
    try {
      return await action();
    } finally {
      this.#admit(instance.id, instance.cid);
      await instance.process.continue();
      instance.state = "Running";
    }
  }

  /** cmd/api/api/snapshots.go:55-62 has no word for a lack of room; a snapshot whose source does not wake up is dropped. */
  async #snapshot(instance: InstanceRecord, body: Body): Promise<object> {
    const before = new Set(this.snapshots.keys());
    try {
      return await this.#whileSuspended(instance, () => Promise.resolve(this.#addSnapshot(instance, body)));
    } catch (error) {
      for (const id of this.snapshots.keys()) if (!before.has(id)) this.snapshots.delete(id);
      if (error instanceof ApiFailure && error.code === "insufficient_resources")
        throw new Error("restore source", { cause: error });
      throw error;
    }
  }

  #addSnapshot(source: InstanceRecord, body: Body): object {
    const id = randomBytes(8).toString("hex");
    const folder = join(this.#folder, "snapshots", id);
    cpSync(source.process.machine.folder, folder, { recursive: true });
    const asItWas = { ...source };
    const snapshot = { id, name: String(body["name"]), tags: (body["tags"] ?? {}) as Tags, source: asItWas, folder };
    this.snapshots.set(id, snapshot);
    return toldSnapshot(snapshot);
  }
}

function resources(): object {
  const status = (type: string, capacity: number): object => ({
    type,
    capacity,
    effective_limit: capacity,
    allocated: 0,
  });
  return {
    cpu: { ...status("cpu", 4), allocated: 3 },
    memory: { ...status("memory", 8 * 2 ** 30), allocated: 2 ** 30 },
    disk: status("disk", 0),
    network: status("network", 0),
    allocations: [],
  };
}

function known<Thing>(thing: Thing | undefined): Thing {
  if (thing === undefined) throw notFound();
  return thing;
}

function stateOf({ state, process }: InstanceRecord): string {
  return state === "Running" && !process.isRunning ? "Stopped" : state;
}

function told(instance: InstanceRecord): { readonly tags: Tags; readonly [field: string]: unknown } {
  const { id, name, body, process } = instance;
  const tags = (body["tags"] ?? {}) as Tags;
  const network = { enabled: true, name: "default", ip: process.machine.ip, mac: null };
  const exit = process.exitCode === undefined ? {} : { exit_code: process.exitCode };
  const about = { id, name, image: body["image"], env: body["env"], state: stateOf(instance), hypervisor: "qemu" };
  return { ...about, network, tags, ...exit };
}

/** Lines as the substrate sends them (cmd/api/api/instances.go:833-851): each is the JSON of an event's data. */
function events(text: string, tail: number): string {
  const lines = text.split("\n").slice(0, -1).slice(-tail);
  return lines.map((line) => `data: ${JSON.stringify(line)}\n\n`).join("");
}

function toldSnapshot({ id, name, tags, source, folder }: SnapshotRecord): object {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((each) => each.isFile());
  const size_bytes = files.reduce((sum, { parentPath, name: file }) => sum + statSync(join(parentPath, file)).size, 0);
  const about = { kind: "Standby", source_instance_id: source.id, source_instance_name: source.name };
  return { id, name, tags, size_bytes, ...about };
}

interface Mount {
  readonly volume_id: string;
  readonly mount_path: string;
  readonly overlay?: boolean;
}

function mountsOf(body: Body): readonly Mount[] {
  return (body["volumes"] ?? []) as readonly Mount[];
}
