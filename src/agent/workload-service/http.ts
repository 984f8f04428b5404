import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { type Clock, Late } from "../domain/index.ts";
import {
  ErrorCode,
  Http2Connection,
  type Http2Limits,
  type Http2Stream,
  Pace,
  type RequestFields,
} from "../http2/index.ts";
import type { AcceptedConnection } from "../listening/index.ts";
import type { IdleDeclarations } from "./idle-declarations.ts";
import { MESSAGE_LIMIT_BYTES, type WorkloadLimits } from "./limits.ts";
import { PacedSocket } from "./paced-socket.ts";
import type { AnswerWorkload, WorkloadAnswer, WorkloadRequest } from "./service.ts";

const HEADER_LIMIT_BYTES = 8 * 1024;
/** Largest body: a message and gRPC's prefix of 5 bytes. A longer one is refused without reading more. */
const BODY_LIMIT_BYTES = MESSAGE_LIMIT_BYTES + 5;
/** There is one operation, it takes no time, and its requests are small. */
const HTTP2_LIMITS: Partial<Http2Limits> = {
  streams: 4,
  headerListBytes: HEADER_LIMIT_BYTES,
  rememberedBlocks: 0,
  resets: 32,
  resetsPerSecond: 1,
  idleFrames: 100,
  idleFramesPerSecond: 10,
  streamWindowBytes: 64 * 1024,
  largestStreamWindowBytes: 64 * 1024,
  connectionWindowBytes: 256 * 1024,
};

/** Options of WorkloadHttp. */
export interface WorkloadHttpOptions {
  readonly idle: Pick<IdleDeclarations, "declare">;
  /** Value of the response header `svc-agent-version`. */
  readonly agentVersion: string;
  readonly clock: Clock;
  readonly limits: WorkloadLimits;
}

/** Serves both versions of HTTP on connections that its caller accepts. */
export class WorkloadHttp {
  readonly #options: WorkloadHttpOptions;
  readonly #versionField: Readonly<Record<string, string>>;
  readonly #http1: Server;
  readonly #pace = new Pace();
  readonly #service = new Late<AnswerWorkload>(async () => {
    const { workloadService } = await import("./service.ts");
    return workloadService(this.#options.idle);
  });

  constructor(options: WorkloadHttpOptions) {
    this.#options = options;
    this.#versionField = { "svc-agent-version": options.agentVersion };
    this.#http1 = createServer(
      { maxHeaderSize: HEADER_LIMIT_BYTES, requireHostHeader: false },
      (request, response) => void this.#answerHttp1(request, response),
    );
    this.#http1.on("clientError", (_error, socket) => socket.destroy());
  }

  /** Serves a connection. Reads what its socket has buffered, too. */
  serve(connection: AcceptedConnection, protocol: "http1" | "http2"): void {
    const paced = new PacedSocket(connection.socket, this.#pace);
    if (protocol === "http1") this.#http1.emit("connection", paced);
    else this.#serveHttp2(paced, connection);
  }

  #serveHttp2(paced: PacedSocket, connection: AcceptedConnection): void {
    const { socket } = connection;
    const { clock, limits } = this.#options;
    const http2 = new Http2Connection(
      paced,
      socket,
      { firstRequestMs: limits.headersTimeoutMs, http2: HTTP2_LIMITS },
      {
        request: (stream, fields) => this.#answerHttp2(stream, fields),
        failed: (reason) => connection.failed(reason),
        peerDead: () => {},
        closing: () => connection.closing(),
        gone: () => clearTimeout(old),
      },
      () => clock.monotonicMs(),
    );
    const old = setTimeout(() => http2.drain(), limits.connectionAgeMs);
    old.unref();
    socket.setTimeout(limits.idleTimeoutMs, () => http2.close());
    http2.serve();
  }

  #answerHttp2(stream: Http2Stream, fields: RequestFields): void {
    const overdue = setTimeout(() => stream.reset(ErrorCode.CANCEL), this.#options.limits.requestTimeoutMs);
    overdue.unref();
    const answer = async (body: Buffer): Promise<void> => {
      const { ":method": method = "", ":path": path = "" } = fields;
      const regular = Object.entries(fields).filter((field): field is [string, string] => !field[0].startsWith(":"));
      try {
        const answered = await this.#answer({ httpVersion: "2.0", method, path, header: new Headers(regular), body });
        stream.respond({ ":status": String(answered.status), ...answered.fields });
        stream.write(answered.body);
        stream.end(answered.trailers);
      } catch {
        stream.reset(ErrorCode.PROTOCOL_ERROR);
      }
    };
    const body = new RequestBody((whole) => void answer(whole));
    stream.consumer = {
      data: (slice) => body.add(slice),
      end: () => body.end(),
      closed: () => clearTimeout(overdue),
    };
  }

  async #answerHttp1(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const overdue = setTimeout(() => request.destroy(), this.#options.limits.requestTimeoutMs);
    overdue.unref();
    response.once("close", () => clearTimeout(overdue));
    response.shouldKeepAlive = false;
    const whole = await new Promise<Buffer>((resolve) => {
      const body = new RequestBody(resolve);
      // The client is gone before its request was complete.
      request.on("error", () => {});
      request.on("data", (slice: Buffer) => body.add(slice));
      request.on("end", () => body.end());
    });
    const { httpVersion, method = "", url: path = "", headersDistinct } = request;
    const fields = Object.entries(headersDistinct).flatMap(([name, values = []]) =>
      values.map((value): [string, string] => [name, value]),
    );
    try {
      const header = new Headers(fields);
      const { status, fields: answered, body } = await this.#answer({ httpVersion, method, path, header, body: whole });
      response.writeHead(status, answered).end(Buffer.concat(body));
    } catch {
      request.destroy();
    }
  }

  /**
   * The service is loaded at the first call: it takes megabytes and tens of milliseconds, and most workloads never
   * call.
   */
  async #answer(request: WorkloadRequest): Promise<WorkloadAnswer> {
    const answer = await (await this.#service.get())(request);
    return { ...answer, fields: { ...this.#versionField, ...answer.fields } };
  }
}

/** Collects a request's body up to the limit. A client that sends more is answered without waiting for the end. */
class RequestBody {
  /** One growing buffer: pieces can be one byte each, and memory of its own for each would be a hundred times that. */
  #bytes = Buffer.allocUnsafeSlow(256);
  readonly #whole: (body: Buffer) => void;
  #sizeBytes = 0;
  #isWhole = false;

  constructor(whole: (body: Buffer) => void) {
    this.#whole = whole;
  }

  /** Copies the piece. */
  add(piece: Buffer): void {
    if (this.#isWhole) return;
    const endBytes = this.#sizeBytes + piece.length;
    if (endBytes > this.#bytes.length) {
      const larger = Buffer.allocUnsafeSlow(2 * endBytes);
      this.#bytes.copy(larger, 0, 0, this.#sizeBytes);
      this.#bytes = larger;
    }
    piece.copy(this.#bytes, this.#sizeBytes);
    this.#sizeBytes = endBytes;
    if (endBytes > BODY_LIMIT_BYTES) this.end();
  }

  end(): void {
    if (this.#isWhole) return;
    this.#isWhole = true;
    this.#whole(this.#bytes.subarray(0, this.#sizeBytes));
  }
}
