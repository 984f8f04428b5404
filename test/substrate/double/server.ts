import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { messageOf } from "../../../src/shared/errors.ts";
import { ApiFailure, asInternal, SchemaFailure, Unrouted } from "./failure.ts";
import { LIMITS_MS, type Rules } from "./rules.ts";

/** A request as its handler gets it. */
interface Call {
  /** The part of the path that names a thing; empty where the path has none. */
  readonly id: string;
  readonly query: URLSearchParams;
  /** The body as it arrives, for bodies that are not JSON. */
  readonly stream: AsyncIterable<Uint8Array>;
  /**
   * Aborted when the call has taken as long as the substrate lets any (hypeman 8853445, cmd/api/main.go:523), or when
   * the caller has left.
   */
  readonly signal: AbortSignal;
  /** Reads the body as JSON; an absent one is an empty object, and null is as good as absent. */
  readonly body: () => Promise<unknown>;
}

/** A status and the answer's JSON, or events of which each has JSON; none with 204. */
export type Reply = readonly [status: number, content?: unknown];

/** Values that are sent as server-sent events. */
export class Events {
  readonly values: readonly unknown[];

  constructor(values: readonly unknown[]) {
    this.values = values;
  }
}

/** The API's operations by method and path, such as "POST /instances/{id}/stop". */
export type Routes = Readonly<Record<string, Handler>>;
export type Handler = (call: Call) => Promise<Reply> | Reply;

/** The only operation that asks for no token. */
const OPEN = "GET /health";

/**
 * Serves routes over HTTP as the substrate does: JSON both ways, a bearer token, plain text for an unknown path. A body
 * that does not fit the schema gets an answer that only looks like JSON.
 *
 * @param log gets a line for every call but successful reads, without content, and the cause of every internal error
 */
export function createApiServer(routes: Routes, token: string, rules: Rules, log: (line: string) => void): Server {
  const table = Object.entries(routes).map(([operation, handle]) => {
    const [, method = "", path = ""] = /^(\S+) (.+)$/.exec(operation) ?? [];
    // One `{…}` of the path stands for a name; slashes in it are encoded.
    const pattern = new RegExp(`^${path.replace(/\{\w+\}/, "([^/]+)")}$`);
    return { operation, method, pattern, handle };
  });
  return createServer((request, response) => {
    const began = performance.now();
    response.on("close", () => {
      const { method = "", url = "" } = request;
      const status = response.writableEnded ? `${response.statusCode}` : "the caller has gone";
      // Clients poll: their reads would fill the log.
      if (method === "GET" && status === "200") return;
      log(`${method} ${url.replace(/\?.*/, "")}: ${status}, ${Math.round(performance.now() - began)} ms`);
    });
    void answer(request, response);
  });

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let id = "";
    try {
      const { pathname, searchParams: query } = new URL(request.url ?? "/", "http://localhost");
      const found = table.find(({ method, pattern }) => method === request.method && pattern.test(pathname));
      if (found === undefined) throw new Unrouted();
      if (found.operation !== OPEN) {
        const [, given] = /^bearer (.+)$/i.exec(request.headers.authorization ?? "") ?? [];
        if (given !== token) throw new ApiFailure(401, "Unauthorized", "invalid token");
        authorize(found.operation, rules.scopes);
      }
      id = decodeURIComponent(found.pattern.exec(pathname)?.[1] ?? "");
      const stream = request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>;
      const limit = AbortSignal.timeout(Math.ceil(LIMITS_MS.call * rules.patience));
      const signal = AbortSignal.any([limit, departure(request, response)]);
      const [status, content] = await found.handle({ id, query, body: () => jsonOf(stream), stream, signal });
      if (content instanceof Events) {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.end(content.values.map((value) => `data: ${JSON.stringify(value)}\n\n`).join(""));
      } else send(response, status, content === undefined ? "" : JSON.stringify(content));
    } catch (error) {
      sendFailure(response, id, error);
    } finally {
      // Discards what a refusal has left unread: the connection would never end.
      request.resume();
    }
  }

  function sendFailure(response: ServerResponse, id: string, error: unknown): void {
    const { status, code, message, cause } = asInternal("internal error", error);
    if (error instanceof Unrouted) {
      response.writeHead(status, { "content-type": "text/plain; charset=utf-8" }).end(message);
      return;
    }
    if (status === 500) log(`${id === "" ? "" : `${id}: `}${message}: ${messageOf(cause)}`);
    const isJson = !(error instanceof SchemaFailure);
    send(response, status, isJson ? JSON.stringify({ code, message }) : `{"code":"${code}","message":"${message}"}`);
  }
}

/** hypeman 8853445, lib/scopes/middleware.go:39-43. */
function authorize(operation: string, scopes: Rules["scopes"]): void {
  const needed = SCOPES.find(([pattern]) => pattern.test(operation))?.[1];
  if (needed === undefined || scopes === undefined || scopes.has(needed)) return;
  throw new ApiFailure(403, "Forbidden", `missing required scope: ${needed}`);
}

async function jsonOf(stream: AsyncIterable<Buffer>): Promise<unknown> {
  const text = Buffer.concat(await Array.fromAsync(stream)).toString();
  return text.trim() === "" ? {} : JSON.parse(text, (_key, value: unknown) => value ?? undefined);
}

function send(response: ServerResponse, status: number, text: string): void {
  if (text === "") response.writeHead(status).end();
  else response.writeHead(status, { "content-type": "application/json" }).end(text);
}

/** The scope that each operation asks for (hypeman 8853445, lib/scopes/scopes.go:203-290); others ask for none. */
const SCOPES: readonly (readonly [operation: RegExp, scope: string])[] = [
  [/^GET \/(?:health|capabilities|resources)$/, "resource:read"],
  [/^GET \/images/, "image:read"],
  [/^POST \/instances\/\{id\}\/snapshots$/, "snapshot:write"],
  [/^GET \/instances/, "instance:read"],
  [/^POST \/instances/, "instance:write"],
  [/^DELETE \/instances/, "instance:delete"],
  [/^GET \/snapshots/, "snapshot:read"],
  [/^POST \/snapshots/, "snapshot:write"],
  [/^DELETE \/snapshots/, "snapshot:delete"],
  [/^GET \/ingresses/, "ingress:read"],
  [/^POST \/ingresses/, "ingress:write"],
  [/^DELETE \/ingresses/, "ingress:delete"],
  [/^GET \/volumes/, "volume:read"],
  [/^POST \/volumes/, "volume:write"],
  [/^DELETE \/volumes/, "volume:delete"],
];

/** Names of all scopes. */
export const ALL_SCOPES: ReadonlySet<string> = new Set(SCOPES.map(([, scope]) => scope));

/** What Go's server may have read ahead of a request's end (Go 1.26: net/http/server.go:865, bufio/bufio.go:19). */
const READ_AHEAD_BYTES = 4096;
/** Bytes of all requests so far, by connection. */
const taken = new WeakMap<Socket, number>();

/**
 * Aborted when the caller goes away before its answer, as Go cancels such a request's context (net/http/server.go:773).
 * But once a byte of another request has come, Go does not look any more (server.go:701-729). It looks at the
 * connection itself (server.go:702), so bytes that were read ahead do not count: how many these are depends on the
 * network, and here they are as many as they can be.
 */
function departure(request: IncomingMessage, response: ServerResponse): AbortSignal {
  const left = new AbortController();
  const { socket } = request;
  const endBytes = (taken.get(socket) ?? 0) + sizeOf(request);
  taken.set(socket, endBytes);
  const look = (): void => {
    if (!response.writableEnded && socket.bytesRead - endBytes <= READ_AHEAD_BYTES)
      left.abort(new Error("context canceled"));
  };
  socket.once("end", look).once("close", look);
  response.once("finish", () => socket.off("end", look).off("close", look));
  return left.signal;
}

/** As both of the clients that are used here write it; a body of unknown length is taken to be the last thing sent. */
function sizeOf({ method = "", url = "", rawHeaders, headers }: IncomingMessage): number {
  if (headers["transfer-encoding"] !== undefined) return Infinity;
  // Each name and value ends with two bytes: ": ", or the line's end.
  const head = rawHeaders.reduce((sum, word) => sum + Buffer.byteLength(word, "latin1") + 2, 0);
  return `${method} ${url} HTTP/1.1\r\n`.length + head + "\r\n".length + Number(headers["content-length"] ?? 0);
}
