import type { Socket } from "node:net";
import { messageOf } from "../../shared/errors.ts";
import { afterArrivals, Lazy, type Log, type WatchArrivals } from "../domain/index.ts";
import { type AcceptedConnection, Acceptor } from "../listening/index.ts";
import type { WorkloadHttp, WorkloadHttpOptions } from "./http.ts";
import { DEFAULT_WORKLOAD_LIMITS, type WorkloadLimits } from "./limits.ts";

/** Every process in the guest may declare that the workload is idle, because the workload may run as any user. */
const SOCKET_MODE = 0o666;

export interface WorkloadServerOptions extends Omit<WorkloadHttpOptions, "limits"> {
  readonly log: Log;
  /**
   * Detects connections that are lost because the agent has no free descriptor. If undefined, lost connections are not
   * logged.
   */
  readonly watchArrivals?: WatchArrivals;
  readonly limits?: Partial<WorkloadLimits>;
}

/** Serves only WorkloadService, on a unix socket: gRPC over HTTP/2, and HTTP/1.1 with JSON. */
export class WorkloadServer {
  readonly #options: WorkloadServerOptions;
  readonly #limits: WorkloadLimits;
  readonly #acceptor: Acceptor;
  readonly #http = new Lazy<WorkloadHttp>(async () => {
    const { idle, agentVersion, clock } = this.#options;
    const { WorkloadHttp } = await import("./http.ts");
    return new WorkloadHttp({ idle, agentVersion, clock, limits: this.#limits });
  });

  constructor(options: WorkloadServerOptions) {
    const { log, clock, watchArrivals } = options;
    this.#options = options;
    this.#limits = { ...DEFAULT_WORKLOAD_LIMITS, ...options.limits };
    this.#acceptor = new Acceptor(
      { name: "workload", limit: this.#limits.connections, log, clock, watchArrivals },
      {},
      (connection) => this.#accept(connection),
    );
  }

  /** Listens on `path`. Throws AgentError on failure. */
  async listen(path: string): Promise<void> {
    await this.#acceptor.listenUnix(path, SOCKET_MODE);
    this.#options.log.info("workload_socket_listening", { path });
  }

  /** Number of open connections, in any state. */
  get connections(): number {
    return this.#acceptor.sockets;
  }

  close(): void {
    this.#acceptor.stop();
    this.#acceptor.destroy();
  }

  #accept(connection: AcceptedConnection): void {
    const { socket } = connection;
    const { headersTimeoutMs, requestTimeoutMs } = this.#limits;
    const cancelFirst = dropAfter(connection, headersTimeoutMs, "no request");
    socket.once("close", cancelFirst);
    sniffProtocol(socket, (protocol) => {
      cancelFirst();
      connection.isHalfOpen = false;
      if (protocol === "http1") {
        socket.once("close", dropAfter(connection, requestTimeoutMs, "the request was not complete"));
      }
      this.#serve(connection, protocol).catch((error: unknown) => {
        const task = "workload connection";
        this.#options.log.error("background_failed", { task, problem: messageOf(error) });
        connection.destroy();
      });
    });
  }

  /**
   * Loads the HTTP code at the first connection: the agent listens before the workload starts, and the start must not
   * wait for that code.
   */
  async #serve(connection: AcceptedConnection, protocol: "http1" | "http2"): Promise<void> {
    const http = await this.#http.get();
    if (!connection.socket.destroyed) http.serve(connection, protocol);
  }
}

/** Drops the connection after `delayMs`, unless the returned function is called before. */
function dropAfter(connection: AcceptedConnection, delayMs: number, problem: string): () => void {
  return afterArrivals(delayMs, () => connection.drop(`${problem} within ${delayMs} ms`), false);
}

/** The first bytes that a client of HTTP/2 sends (RFC 9113, 3.4). */
const HTTP2_PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "latin1");

/**
 * Distinguishes HTTP/2 from HTTP/1 by the first bytes of the connection. These bytes remain readable from the socket.
 * Does not call `found` if the connection ends before the protocol is known.
 */
function sniffProtocol(socket: Socket, found: (protocol: "http1" | "http2") => void): void {
  let first: Buffer = Buffer.alloc(0);
  const look = (): void => {
    const chunk = socket.read() as Buffer | null;
    if (chunk === null) return;
    first = first.length === 0 ? chunk : Buffer.concat([first, chunk]);
    const compared = Math.min(first.length, HTTP2_PREFACE.length);
    const isPreface = first.compare(HTTP2_PREFACE, 0, compared, 0, compared) === 0;
    if (isPreface && compared < HTTP2_PREFACE.length) return;
    socket.off("readable", look);
    socket.unshift(first);
    found(isPreface ? "http2" : "http1");
  };
  socket.on("readable", look);
}
