import { createServer as createHttp1Server, type Server as Http1Server } from "node:http";
import { constants, createServer as createHttp2Server, type Http2Server, type ServerHttp2Session } from "node:http2";
import { createServer, type Server, type Socket } from "node:net";
import { type Clock, CONNECTION_LIMIT, HANDSHAKE_TIMEOUT_MS, type Log } from "../domain/index.ts";
import { type Connection, connectionOf, Connections } from "./connections.ts";
import { errnoOf } from "./listening.ts";
import { sniffProtocol } from "./protocol-sniffer.ts";
import { RefusalLog } from "./refusals.ts";
import { listenUnix } from "./unix-socket.ts";
import type { DeclareIdle, HttpExchange } from "./workload-service.ts";

/** Anybody in the guest may declare idle: the workload may run as any user. */
const SOCKET_MODE = 0o666;
const HEADER_LIMIT_BYTES = 8 * 1024;

/** Bounds of the workload's listener: whoever is at the other end is untrusted. */
export interface WorkloadLimits {
  readonly connections: number;
  /** From the connection to its first request's headers. */
  readonly headersTimeoutMs: number;
  /** From a request's headers to the end of its response; for HTTP/1 from the connection on. */
  readonly requestTimeoutMs: number;
  /** Time without any traffic. */
  readonly idleTimeoutMs: number;
  /** Age at which an HTTP/2 connection takes no more requests. */
  readonly connectionAgeMs: number;
}

const DEFAULT_LIMITS: WorkloadLimits = {
  connections: CONNECTION_LIMIT,
  headersTimeoutMs: HANDSHAKE_TIMEOUT_MS,
  requestTimeoutMs: 10_000,
  idleTimeoutMs: 60_000,
  connectionAgeMs: 600_000,
};

/** What the workload's server is made of. */
export interface WorkloadServerOptions {
  readonly declareIdle: DeclareIdle;
  /** Value of the response header `svc-agent-version`. */
  readonly agentVersion: string;
  readonly log: Log;
  readonly clock: Clock;
  readonly limits?: Partial<WorkloadLimits>;
}

/** Serves WorkloadService, and nothing else, on a unix socket: gRPC over HTTP/2, and HTTP/1.1 with JSON. */
export class WorkloadServer {
  readonly #options: WorkloadServerOptions;
  readonly #limits: WorkloadLimits;
  readonly #connections: Connections;
  readonly #sockets = new Set<Socket>();
  readonly #http1: Http1Server;
  readonly #http2: Http2Server;
  readonly #acceptor: Server;
  #service: Promise<HttpExchange> | undefined;

  constructor(options: WorkloadServerOptions) {
    const { log, clock } = options;
    this.#options = options;
    this.#limits = { ...DEFAULT_LIMITS, ...options.limits };
    this.#connections = new Connections(this.#limits.connections, new RefusalLog(log, clock, "workload"));
    this.#http1 = createHttp1Server({ maxHeaderSize: HEADER_LIMIT_BYTES }, (request, response) => {
      response.shouldKeepAlive = false;
      void this.#answer(request, response);
    });
    this.#http1.on("clientError", (_error, socket) => socket.destroy());
    this.#http2 = createHttp2Server(
      {
        settings: { maxConcurrentStreams: 16, maxHeaderListSize: HEADER_LIMIT_BYTES },
        maxSessionMemory: 1,
        maxSessionInvalidFrames: 10,
      },
      (request, response) => {
        void this.#answer(request, response);
      },
    );
    this.#http2.on("session", (session) => this.#watch(session));
    this.#http2.on("sessionError", () => {});
    this.#acceptor = createServer((socket) => this.#accept(socket));
    this.#acceptor.on("error", (error) => log.warn("accept_failed", { listener: "workload", errno: errnoOf(error) }));
  }

  /** Listens on `path`. Throws AgentError when it cannot. */
  async listen(path: string): Promise<void> {
    await listenUnix(this.#acceptor, path, SOCKET_MODE);
  }

  /** Closes the socket and every connection. */
  close(): void {
    this.#acceptor.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  #accept(socket: Socket): void {
    const connection = this.#connections.admit(socket);
    if (connection === undefined) return;
    this.#sockets.add(socket);
    const { headersTimeoutMs, requestTimeoutMs } = this.#limits;
    const first = dropAfter(connection, headersTimeoutMs, "no request");
    socket.once("close", () => {
      clearTimeout(first);
      this.#sockets.delete(socket);
    });
    sniffProtocol(socket, (protocol) => {
      clearTimeout(first);
      connection.established();
      if (protocol === "http2") {
        this.#http2.emit("connection", socket);
        return;
      }
      const whole = dropAfter(connection, requestTimeoutMs, "request not complete");
      socket.once("close", () => clearTimeout(whole));
      this.#http1.emit("connection", socket);
    });
  }

  #watch(session: ServerHttp2Session): void {
    const { headersTimeoutMs, idleTimeoutMs, connectionAgeMs } = this.#limits;
    const connection = connectionOf(session.socket);
    const first = connection && dropAfter(connection, headersTimeoutMs, "no request");
    const old = setTimeout(() => session.close(), connectionAgeMs);
    old.unref();
    session.setTimeout(idleTimeoutMs, () => session.destroy());
    session.once("stream", () => clearTimeout(first));
    session.once("close", () => {
      clearTimeout(first);
      clearTimeout(old);
    });
  }

  async #answer(...[request, response]: Parameters<HttpExchange>): Promise<void> {
    const overdue = setTimeout(() => abandon(request), this.#limits.requestTimeoutMs);
    overdue.unref();
    response.once("close", () => clearTimeout(overdue));
    try {
      response.setHeader("svc-agent-version", this.#options.agentVersion);
      // Most workloads never call, and what answers them takes megabytes and tens of milliseconds to load.
      this.#service ??= import("./workload-service.ts").then(({ workloadService }) =>
        workloadService(this.#options.declareIdle),
      );
      await (
        await this.#service
      )(request, response);
    } catch {
      // The client is gone or its request is unusable: nobody is left to tell.
      abandon(request);
    }
  }
}

function abandon(request: Parameters<HttpExchange>[0]): void {
  if ("stream" in request) request.stream.close(constants.NGHTTP2_CANCEL);
  else request.destroy();
}

function dropAfter(connection: Connection, delayMs: number, problem: string): NodeJS.Timeout {
  return setTimeout(() => connection.drop(`${problem} within ${delayMs} ms`), delayMs).unref();
}
