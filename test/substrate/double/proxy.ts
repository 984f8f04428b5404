import { once } from "node:events";
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from "node:http";
import type { Hypeman } from "@onkernel/hypeman";
import { freePort } from "../../../scripts/machine/free-port.ts";
import { messageOf } from "../../../src/shared/errors.ts";
import type { InstanceRecord } from "./instance.ts";
import type { Instances } from "./instances.ts";

/** The host's port of a rule that names none. */
const USUAL_PORT = 80;

export type Rule = Pick<Hypeman.IngressRule, "match" | "target">;

/**
 * Where a port of an instance is reached: an address of the host, nowhere at the moment, or undefined: there is no such
 * one.
 */
type Upstream = { readonly host: string; readonly port: number } | "unreachable" | undefined;
export type Resolve = (instance: string, port: number) => Promise<Upstream>;

const DIAL_LIMIT_MS = 60_000;

/**
 * The reverse proxy of ingresses. Answers as the real one's Caddy: 404 for a hostname without a rule, 503 for a name
 * that no instance has, 502 if nothing answers behind it. Adds "via" to answers that it passes on. It listens on the
 * loopback alone, and passes on no upgraded connections.
 */
export class Proxy implements AsyncDisposable {
  readonly #resolve: Resolve;
  readonly #log: (line: string) => void;
  readonly #servers = new Map<number, Server>();
  #rules: readonly Rule[] = [];

  constructor(resolve: Resolve, log: (line: string) => void) {
    this.#resolve = resolve;
    this.#log = log;
  }

  /** Serves these rules instead of those before; all or none. @throws Error where a port cannot be listened on */
  async load(rules: readonly Rule[]): Promise<void> {
    const wanted = new Set(rules.map(listenPortOf));
    const opened: number[] = [];
    try {
      for (const port of wanted) {
        if (this.#servers.has(port)) continue;
        this.#servers.set(port, await this.#listen(port));
        opened.push(port);
      }
    } catch (error) {
      await this.#close(opened);
      throw error;
    }
    this.#rules = rules;
    await this.#close([...this.#servers.keys()].filter((port) => !wanted.has(port)));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#close([...this.#servers.keys()]);
  }

  async #listen(port: number): Promise<Server> {
    const server = createServer((asked, response) => void this.#serve(port, asked, response));
    server.listen(port, "127.0.0.1");
    await once(server, "listening");
    return server;
  }

  async #close(ports: readonly number[]): Promise<void> {
    for (const port of ports) {
      const server = this.#servers.get(port);
      this.#servers.delete(port);
      if (server === undefined) continue;
      server.close();
      server.closeAllConnections();
      await once(server, "close");
    }
  }

  async #serve(port: number, asked: IncomingMessage, response: ServerResponse): Promise<void> {
    const name = (asked.headers.host ?? "").replace(/:\d+$/, "");
    const isAsked = ({ hostname }: Rule["match"]): boolean => hostname.toLowerCase() === name.toLowerCase();
    const rule = this.#rules.find((each) => listenPortOf(each) === port && isAsked(each.match));
    response.setHeader("server", "Caddy");
    if (rule === undefined) {
      response.writeHead(404, { "content-type": "text/plain; charset=utf-8" });
      response.end(`Not Found: no ingress configured for hostname ${name}`);
      asked.resume();
      return;
    }
    try {
      const upstream = await this.#resolve(rule.target.instance, rule.target.port);
      if (upstream === undefined) response.writeHead(503).end();
      else if (upstream === "unreachable") response.writeHead(502).end();
      else await pass(asked, response, upstream);
    } catch (error) {
      this.#log(`ingress ${name}: ${messageOf(error)}`);
      if (response.headersSent) response.destroy();
      else response.writeHead(502).end();
    } finally {
      asked.resume();
    }
  }
}

/** Passes a request on, and its answer back. Rejects where no answer comes. */
async function pass(
  asked: IncomingMessage,
  response: ServerResponse,
  upstream: { readonly host: string; readonly port: number },
): Promise<void> {
  const { method, url, headers } = asked;
  const signal = AbortSignal.timeout(DIAL_LIMIT_MS);
  const own = { ...headers, connection: "close" };
  const outgoing = request({ ...upstream, method, path: url, headers: own, agent: false, signal });
  response.once("close", () => outgoing.destroy());
  asked.pipe(outgoing);
  const [answer] = (await once(outgoing, "response")) as [IncomingMessage];
  outgoing.on("error", () => response.destroy());
  const { connection: _connection, "transfer-encoding": _encoding, ...kept } = answer.headers;
  response.writeHead(answer.statusCode ?? 502, { ...kept, via: "1.1 Caddy" });
  answer.on("error", () => response.destroy()).pipe(response);
}

/** The host's port that a rule is for. */
export function listenPortOf({ match: { port } }: Rule): number {
  return port === undefined || port === 0 ? USUAL_PORT : port;
}

/**
 * Finds where a port of an instance is reached. A machine gets a port of the host for it when it is first asked for;
 * the next machine of that instance another.
 */
export function upstreams(instances: Instances): Resolve {
  const forwards = new Map<string, Promise<number>>();
  return async (name, guestPort) => {
    const instance = found(instances, name);
    const host = instance?.network.ip;
    if (instance === undefined || host === undefined || host === null) return undefined;
    const vm = instances.machines.of(instance.id);
    const { pid } = vm;
    if (pid === undefined || vm.isPaused) return "unreachable";
    const key = `${instance.id} ${pid} ${guestPort}`;
    const port = forwards.get(key) ?? forwarded();
    forwards.set(key, port);
    port.catch(() => forwards.delete(key));
    return { host, port: await port };

    async function forwarded(): Promise<number> {
      const free = await freePort();
      await vm.forward(host ?? "", free, guestPort);
      return free;
    }
  };
}

function found(instances: Instances, name: string): InstanceRecord | undefined {
  try {
    return instances.get(name);
  } catch {
    return undefined;
  }
}
