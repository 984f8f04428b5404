import {
  ErrorCode,
  Http2Connection,
  type Http2Limits,
  type Http2Stream,
  ThrottleQueue,
  ThrottledInput,
  type RequestFields,
} from "../http2/index.ts";
import { clearUnreferenced, type Clock, reportInternalError } from "../domain/index.ts";
import type { AcceptedConnection } from "../listening/index.ts";
import { http1Answer, Http1Reader } from "./http1.ts";
import type { IdleDeclarations } from "./idle-declarations.ts";
import type { WorkloadLimits } from "./limits.ts";
import { RequestBody } from "./request-body.ts";
import { answerWorkload, type WorkloadAnswer, type WorkloadRequest } from "./service.ts";

/** The limits are small because the service has only one operation, which is fast and has small requests. */
const HTTP2_LIMITS: Partial<Http2Limits> = {
  streams: 4,
  headerListBytes: 8 * 1024,
  rememberedBlocks: 0,
  idleFrames: 100,
  idleFramesPerSecond: 10,
  streamWindowBytes: 64 * 1024,
  largestStreamWindowBytes: 64 * 1024,
  connectionWindowBytes: 256 * 1024,
};

export interface WorkloadHttpOptions {
  readonly idle: Pick<IdleDeclarations, "declare">;
  /** Value of the response header `svc-agent-version`. */
  readonly agentVersion: string;
  readonly clock: Clock;
  readonly limits: WorkloadLimits;
}

/** Serves HTTP/1 and HTTP/2 on connections that its caller accepts. */
export class WorkloadHttp {
  readonly #options: WorkloadHttpOptions;
  readonly #versionField: Readonly<Record<string, string>>;
  readonly #pace = new ThrottleQueue();

  constructor(options: WorkloadHttpOptions) {
    this.#options = options;
    this.#versionField = { "svc-agent-version": options.agentVersion };
  }

  /**
   * Serves a connection, beginning with the data that its socket has buffered. Until the first request is complete, the
   * connection may have to make room for a new one, because any process in the guest can open idle connections.
   */
  serve(connection: AcceptedConnection, protocol: "http1" | "http2"): void {
    // A client may close its write side after the request and still read the response.
    connection.socket.allowHalfOpen = true;
    if (protocol === "http1") this.#serveHttp1(connection);
    else this.#serveHttp2(connection);
  }

  #serveHttp2(connection: AcceptedConnection): void {
    const { socket } = connection;
    const { clock, limits } = this.#options;
    const http2 = new Http2Connection(
      socket,
      socket,
      { firstRequestMs: limits.headersTimeoutMs, pace: { queue: this.#pace }, http2: HTTP2_LIMITS },
      {
        request: (stream, fields) => this.#answerHttp2(connection, stream, fields),
        failed: (reason) => connection.failed(reason),
        closing: () => connection.closing(),
        gone: () => clearUnreferenced(old),
      },
      () => clock.monotonicMs(),
    );
    const old = setTimeout(() => http2.drain(), limits.connectionAgeMs);
    old.unref();
    socket.setTimeout(limits.idleTimeoutMs, () => http2.close());
    http2.serve();
  }

  #answerHttp2(connection: AcceptedConnection, stream: Http2Stream, fields: RequestFields): void {
    const overdue = setTimeout(() => stream.reset(ErrorCode.CANCEL), this.#options.limits.requestTimeoutMs);
    overdue.unref();
    const answer = async (body: Buffer): Promise<void> => {
      connection.isKept = true;
      const { ":method": method = "", ":path": path = "" } = fields;
      try {
        const answered = await this.#answer({ method, path, fields, body });
        stream.respond({ ":status": String(answered.status), ...answered.fields });
        stream.write(answered.body);
        stream.end(answered.trailers);
      } catch (error) {
        reportInternalError(error);
        stream.reset(ErrorCode.INTERNAL_ERROR);
      }
    };
    const body = new RequestBody((whole) => void answer(whole));
    stream.consumer = {
      data: (slice) => body.add(slice),
      end: () => body.end(),
      closed: () => clearUnreferenced(overdue),
    };
  }

  #serveHttp1(connection: AcceptedConnection): void {
    const { socket } = connection;
    const answer = async (request: WorkloadRequest, version: string): Promise<void> => {
      connection.isKept = true;
      try {
        socket.end(http1Answer(await this.#answer(request), request.method, version), () => socket.destroy());
      } catch (error) {
        reportInternalError(error);
        socket.destroy();
      }
    };
    const reader = new Http1Reader({
      expects: () => socket.write("HTTP/1.1 100 Continue\r\n\r\n"),
      complete: (request, version) => void answer(request, version),
    });
    const input = new ThrottledInput(
      socket,
      { queue: this.#pace },
      {
        read: (piece) => {
          if (!reader.receive(piece)) socket.destroy();
        },
        // The client disconnected before its request was complete.
        ended: () => {
          if (!reader.isComplete) socket.destroy();
        },
      },
    );
    input.start();
  }

  async #answer(request: WorkloadRequest): Promise<WorkloadAnswer> {
    const answer = await answerWorkload(this.#options.idle, request);
    return { ...answer, fields: { ...this.#versionField, ...answer.fields } };
  }
}
