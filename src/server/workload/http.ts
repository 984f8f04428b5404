import { createServer as createHttp1Server, type Server as Http1Server } from "node:http";
import { constants, createServer as createHttp2Server, type Http2Server, type ServerHttp2Session } from "node:http2";
import type { Socket } from "node:net";
import type { Connection } from "../connections.ts";
import { dropAfter, type WorkloadLimits } from "./limits.ts";
import { Pace, PacedSocket } from "./paced-socket.ts";
import type { DeclareIdle, HttpExchange } from "./service.ts";

const HEADER_LIMIT_BYTES = 8 * 1024;
/** Calls at once on an HTTP/2 connection. There is one operation, and it takes no time. */
const STREAM_LIMIT = 4;
/** Unanswered calls after which an HTTP/2 connection is closed: a cancelled call counts too, but frees its stream. */
const UNANSWERED_LIMIT = 32;

/** Options of WorkloadHttp. */
export interface WorkloadHttpOptions {
  readonly declareIdle: DeclareIdle;
  /** Value of the response header `svc-agent-version`. */
  readonly agentVersion: string;
  readonly limits: WorkloadLimits;
}

/** Serves both versions of HTTP on connections that its caller accepts. */
export class WorkloadHttp {
  readonly #options: WorkloadHttpOptions;
  readonly #http1: Http1Server;
  readonly #http2: Http2Server;
  readonly #pace = new Pace();
  #service: Promise<HttpExchange> | undefined;

  constructor(options: WorkloadHttpOptions) {
    this.#options = options;
    this.#http1 = createHttp1Server(
      { maxHeaderSize: HEADER_LIMIT_BYTES, requireHostHeader: false },
      (request, response) => {
        response.shouldKeepAlive = false;
        void this.#answer(request, response);
      },
    );
    this.#http1.on("clientError", (_error, socket) => socket.destroy());
    this.#http2 = createHttp2Server(
      {
        settings: { maxConcurrentStreams: STREAM_LIMIT, maxHeaderListSize: HEADER_LIMIT_BYTES },
        maxSessionMemory: 1,
        maxSessionInvalidFrames: 10,
      },
      (request, response) => {
        void this.#answer(request, response);
      },
    );
    this.#http2.on("sessionError", () => {});
  }

  /** Serves a connection. Reads what its socket has buffered, too. */
  serve(socket: Socket, connection: Connection, protocol: "http1" | "http2"): void {
    const paced = new PacedSocket(socket, this.#pace);
    if (protocol === "http1") {
      this.#http1.emit("connection", paced);
      return;
    }
    // Node emits "session" before `emit` returns.
    const watch = (session: ServerHttp2Session): void => this.#watch(session, socket, connection);
    this.#http2.once("session", watch).emit("connection", paced);
    this.#http2.off("session", watch);
  }

  #watch(session: ServerHttp2Session, socket: Socket, connection: Connection): void {
    const { headersTimeoutMs, idleTimeoutMs, connectionAgeMs } = this.#options.limits;
    const first = dropAfter(connection, headersTimeoutMs, "no request");
    const old = setTimeout(() => session.close(), connectionAgeMs);
    old.unref();
    // The session's own timeout would outlive it, and keep it and all that its socket had read in memory.
    socket.setTimeout(idleTimeoutMs, () => session.destroy());
    // nghttp2 bounds resets too, but only after it has passed on all of its input.
    let unanswered = 0;
    session.on("stream", (stream) => {
      clearTimeout(first);
      stream.once("close", () => {
        if (stream.rstCode === constants.NGHTTP2_NO_ERROR) unanswered--;
      });
      if (++unanswered <= UNANSWERED_LIMIT) return;
      connection.drop(`${UNANSWERED_LIMIT} calls were given up`);
      session.destroy();
    });
    session.once("close", () => {
      clearTimeout(first);
      clearTimeout(old);
    });
  }

  async #answer(...[request, response]: Parameters<HttpExchange>): Promise<void> {
    const overdue = setTimeout(() => abandon(request), this.#options.limits.requestTimeoutMs);
    overdue.unref();
    response.once("close", () => clearTimeout(overdue));
    try {
      response.setHeader("svc-agent-version", this.#options.agentVersion);
      // Loaded at the first call: it takes megabytes and tens of milliseconds, and most workloads never call.
      this.#service ??= import("./service.ts").then(({ workloadService }) =>
        workloadService(this.#options.declareIdle),
      );
      await (
        await this.#service
      )(request, response);
    } catch {
      // The client is gone, or its request is unusable.
      abandon(request);
    }
  }
}

function abandon(request: Parameters<HttpExchange>[0]): void {
  if ("stream" in request) request.stream.close(constants.NGHTTP2_CANCEL);
  else request.destroy();
}
