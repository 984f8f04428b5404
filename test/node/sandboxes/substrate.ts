import { AsyncLocalStorage } from "node:async_hooks";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "../../../scripts/machine/free-port.ts";
import { ApiFailure, Unrouted } from "../../substrate/double/failure.ts";
import { type ImageRecord, Images } from "../../substrate/double/images.ts";
import { Ingresses } from "../../substrate/double/ingresses.ts";
import { newId } from "../../substrate/double/instance.ts";
import { Instances } from "../../substrate/double/instances.ts";
import { Proxy, upstreams } from "../../substrate/double/proxy.ts";
import { Records } from "../../substrate/double/records.ts";
import { routesOf } from "../../substrate/double/routes.ts";
import type { Rules } from "../../substrate/double/rules.ts";
import { createApiServer, type Handler, type Reply, type Routes } from "../../substrate/double/server.ts";
import { Snapshots } from "../../substrate/double/snapshots.ts";
import { Volumes } from "../../substrate/double/volumes.ts";
import { SOURCES_COMMAND } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { ProcessMachines } from "./process-machines.ts";

type Body = Readonly<Record<string, unknown>>;

/** A refusal in place of an action or of its answer, or the end of the connection. */
type Fault = ApiFailure | "cut";

/** Called with an operation, such as "POST /instances/{id}/stop", before it is carried out and before its answer. */
type Interference = (operation: string, when: "before" | "after") => Fault | undefined | Promise<Fault | undefined>;

export const IMAGE = "debian:12";
/** What the daemon answers to most that goes wrong. */
export const INTERNAL: ApiFailure = new ApiFailure(500, "internal_error", "failed");
/** What it answers to a path that it does not have. */
export const MISSING: ApiFailure = new Unrouted();
const API_TOKEN = "a-token-of-the-daemon";

/**
 * The development substrate with agents in processes of their own for machines, and with faults. The official client
 * talks to it, so that no code of ours decides the requests.
 */
export class HttpSubstrate implements AsyncDisposable {
  readonly apiToken: string = API_TOKEN;
  readonly agentArchive: string;
  /** The agent's sources as words of a shell's command line. */
  readonly agentLine: string = SOURCES_COMMAND.map((word) => `'${word}'`).join(" ");
  readonly agentPort: number;
  readonly images: Images;
  readonly volumes: Volumes;
  readonly machines: ProcessMachines;
  readonly instances: Instances;
  readonly snapshots: Snapshots;
  readonly ingresses: Ingresses;
  readonly rules: { -readonly [Rule in keyof Rules]: Rules[Rule] } = {
    forks: "contract",
    // None of its limits is reached, under whatever load.
    patience: 1000,
    memoryBytes: 8 * 2 ** 30,
    scopes: undefined,
  };
  /** Operations so far. */
  readonly requests: string[] = [];
  /** Bodies of creations, as received. */
  readonly created: Body[] = [];
  version = "1a2b3c4";
  /** The hypervisor that it says it can start. */
  hypervisor: string = "qemu";
  features: readonly string[] = ["snapshots", "standby", "fork"];
  /** Changes the answers to an operation. */
  readonly edits: Map<string, (answer: never) => unknown> = new Map([
    ["GET /capabilities", (answer) => this.#capabilities(answer)],
  ]);
  interfere: Interference = () => undefined;
  readonly #directory: string;
  readonly #imageRecords: Records<ImageRecord>;
  readonly #proxy: Proxy | undefined;
  readonly #sockets = new AsyncLocalStorage<Socket>();
  readonly #server = createServer();
  readonly #callers = new Map<Socket, number>();
  #port = 0;

  private constructor(directory: string, agentPort: number, hasProxy: boolean) {
    this.#directory = directory;
    this.agentPort = agentPort;
    const log = (): void => undefined;
    this.#imageRecords = new Records(join(directory, "images"));
    this.images = new Images(this.#imageRecords, undefined, log);
    this.volumes = new Volumes(join(directory, "volumes"), (disk, content) =>
      cpSync(content, disk, { recursive: true }),
    );
    const guest = (): Promise<never> => Promise.reject(new Error("nothing is booted here"));
    const host = { images: this.images, volumes: this.volumes, guest, rules: this.rules, log };
    const instancesDirectory = join(directory, "instances");
    this.machines = new ProcessMachines(instancesDirectory, host, agentPort);
    this.instances = new Instances(instancesDirectory, this.machines, host);
    this.snapshots = new Snapshots(join(directory, "snapshots"), this.instances);
    this.#proxy = hasProxy ? new Proxy(upstreams(this.instances), log) : undefined;
    const nameOf = (reference: string): string => this.instances.get(reference).name;
    this.ingresses = new Ingresses(join(directory, "ingresses"), nameOf, this.#proxy);
    const api = createApiServer(this.#watched(routesOf(this)), API_TOKEN, this.rules, log);
    this.#server.on("request", (request, response) =>
      this.#sockets.run(request.socket, () => api.emit("request", request, response)),
    );
    this.#server.on("connection", (socket) => {
      // A connection that the other side has reset has no port any more, and is not closed yet.
      this.#callers.set(socket, socket.remotePort ?? 0);
      socket.once("close", () => this.#callers.delete(socket));
    });
    this.addImage(IMAGE, {
      digest: `sha256:${"1".repeat(64)}`,
      entrypoint: ["/docker-entrypoint.sh"],
      cmd: ["serve", "--port=80"],
    });
    this.agentArchive = this.agentOf("bundle", `exec ${this.agentLine} "$@"`);
  }

  /** @param hasProxy false: ingresses are accepted, and nothing serves them */
  static async start(hasProxy = true): Promise<HttpSubstrate> {
    const substrate = new HttpSubstrate(mkdtempSync(join(tmpdir(), "http-substrate-")), await freePort(), hasProxy);
    await substrate.listen();
    return substrate;
  }

  /** An archive with a shell script as its agent, in a directory of that name. */
  agentOf(name: string, script: string): string {
    const bundle = join(this.#directory, name, "guest-agent-test");
    mkdirSync(bundle, { recursive: true });
    writeFileSync(join(bundle, "guest-agent"), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
    const archive = join(this.#directory, name, "guest-agent.tar.gz");
    execFileSync("tar", ["-czf", archive, "-C", join(this.#directory, name), "guest-agent-test"]);
    return archive;
  }

  get baseUrl(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  /** Directory for the test's node; removed with the substrate. */
  get stateDirectory(): string {
    return join(this.#directory, "state");
  }

  async listen(): Promise<void> {
    this.#server.listen(this.#port, "127.0.0.1");
    await once(this.#server, "listening");
    this.#port = (this.#server.address() as AddressInfo).port;
  }

  /** Adds an image of Docker's library, or of a full name, or replaces it. It has no content. */
  addImage(reference: string, differences: Partial<ImageRecord> = {}): void {
    const name = reference.includes("/") ? reference : `docker.io/library/${reference}`;
    const id = newId();
    this.#imageRecords.begin(id);
    const usual = { status: "ready", digest: `sha256:${id}`, created_at: new Date().toISOString() } as const;
    this.#imageRecords.save({ id, name, ...usual, ...differences });
  }

  /** Answers these requests so, instead of carrying them out or afterwards, until `interfere` is set again. */
  fail(operations: string | RegExp, fault: Fault, moment: "before" | "after" = "before"): void {
    const isMeant = (operation: string): boolean =>
      typeof operations === "string" ? operation === operations : operations.test(operation);
    this.interfere = (operation, when) => (when === moment && isMeant(operation) ? fault : undefined);
  }

  /** Holds the first of those requests before it is carried out; `done` resolves when that is. */
  hold(held: string): {
    readonly begun: Promise<void>;
    readonly release: () => void;
    readonly done: Promise<void>;
  } {
    const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
    const { promise: over, resolve: release } = Promise.withResolvers<void>();
    const { promise: done, resolve: finish } = Promise.withResolvers<void>();
    let isFirst = true;
    this.interfere = async (operation, when) => {
      if (operation !== held) return undefined;
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

  /** Ports of those that are connected. */
  callers(): number[] {
    return [...this.#callers.values()];
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
      ...[undefined, "Standby"]
        .flatMap((state) => this.instances.list({}, state))
        .map(({ name }) => `instance ${name}`),
      ...this.snapshots.list({}).map(({ name }) => `snapshot ${name}`),
      ...this.volumes.list({}).flatMap(({ id, tags }) => (tags?.["svc.agent"] === undefined ? [`volume ${id}`] : [])),
      ...this.ingresses.list({}).map(({ rules }) => `ingress ${rules[0]?.match.hostname}`),
    ];
  }

  /** The machine of the instance of that name. */
  machine(name: string): ReturnType<ProcessMachines["of"]> {
    return this.machines.of(this.instances.get(name).id);
  }

  /** Resolves once its console has these words. */
  async said(name: string, words: RegExp): Promise<void> {
    await until(() => words.test(this.machine(name).console), `${name} has said ${String(words)}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#server.listening) await this.shut();
    await this.#proxy?.[Symbol.asyncDispose]();
    await this.machines.endAll();
    rmSync(this.#directory, { recursive: true, force: true });
  }

  #watched(routes: Routes): Routes {
    const watched = Object.entries(routes).map(([operation, handle]) => [
      operation,
      this.#watchedHandler(operation, handle),
    ]);
    return Object.fromEntries(watched) as Routes;
  }

  #watchedHandler(operation: string, handle: Handler): Handler {
    return async (call): Promise<Reply> => {
      this.requests.push(operation);
      // Read now: the caller may be gone before the action goes on.
      const body = operation.endsWith("/from-archive") ? undefined : await call.body();
      if (operation === "POST /instances") this.created.push(body as Body);
      await this.#interrupt(operation, "before");
      const [status, answer] = await handle({ ...call, body: () => Promise.resolve(body) });
      await this.#interrupt(operation, "after");
      const edit = this.edits.get(operation);
      return [status, edit === undefined ? answer : edit(answer as never)];
    };
  }

  async #interrupt(operation: string, when: "before" | "after"): Promise<void> {
    const fault = await this.interfere(operation, when);
    if (fault === "cut") this.#sockets.getStore()?.destroy();
    if (fault !== undefined) throw fault === "cut" ? INTERNAL : fault;
  }

  #capabilities(answer: { readonly server: object }): object {
    const { hypervisor: name, features } = this;
    return {
      ...answer,
      server: { ...answer.server, version: this.version },
      default_runtime: { name, available: true },
      runtimes: [
        { name, available: true, features },
        { name: "vz", available: false, features: [] },
      ],
    };
  }
}
