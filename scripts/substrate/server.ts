import { createHash, timingSafeEqual } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { ApiFailure, SchemaFailure } from "./failure.ts";
import type { Body } from "./parameters.ts";

const MOST_BODY_BYTES = 2 ** 20;

/** A request as its handler gets it. */
interface Call {
  /** The part of the path that names a thing; empty where there is none. */
  readonly id: string;
  readonly query: URLSearchParams;
  /** The body as it comes in; for what is no JSON. */
  readonly stream: AsyncIterable<Uint8Array>;
  /** Reads the body as a JSON object; an absent one is empty. @throws SchemaFailure */
  readonly body: () => Promise<Body>;
}

/** A status and what is sent with it as JSON; nothing with 204. */
export type Reply = readonly [status: number, content?: unknown];

/** One operation of the API. */
export interface Route {
  readonly method: "GET" | "POST" | "DELETE";
  /** As `/instances/{id}/stop`. */
  readonly path: string;
  /** No token is asked for. */
  readonly isOpen?: true;
  readonly handle: (call: Call) => Promise<Reply> | Reply;
}

/**
 * Serves routes over HTTP as the substrate does: JSON both ways, a bearer token, plain text for an unknown path, and for a body
 * that does not fit the schema an answer that only looks like JSON.
 *
 * @param log is told of every call but reads that succeed, and never of what is in it
 */
export function createApiServer(routes: readonly Route[], token: string, log: (line: string) => void): Server {
  const table = routes.map((route) => ({ route, pattern: patternOf(route.path) }));
  return createServer((request, response) => {
    const began = performance.now();
    response.on("close", () => {
      const { method = "", url = "" } = request;
      const status = response.writableEnded ? `${response.statusCode}` : "the caller has gone";
      // Who waits for something asks many times.
      if (method === "GET" && status === "200") return;
      log(`${method} ${url.replace(/\?.*/, "")}: ${status}, ${Math.round(performance.now() - began)} ms`);
    });
    void answer(request, response);
  });

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      const { pathname, searchParams: query } = new URL(request.url ?? "/", "http://localhost");
      const fitting = table.filter(({ pattern }) => pattern.test(pathname));
      const found = fitting.find(({ route }) => route.method === request.method);
      if (found === undefined) {
        if (fitting.length === 0) plain(response, 404, "404 page not found\n");
        else plain(response, 405, "");
        return;
      }
      if (found.route.isOpen !== true) authenticate(request, token);
      const id = decoded(found.pattern.exec(pathname)?.[1] ?? "");
      const body = (): Promise<Body> => jsonOf(request);
      const [status, content] = await found.route.handle({ id, query, body, stream: request });
      send(response, status, content === undefined ? "" : JSON.stringify(content));
    } catch (error) {
      sendFailure(response, error);
    }
  }

  function sendFailure(response: ServerResponse, error: unknown): void {
    if (error instanceof SchemaFailure) {
      send(response, 400, `{"code":"Bad Request","message":"${error.message}"}`);
      return;
    }
    const known = error instanceof ApiFailure ? error : undefined;
    if (known === undefined) log(`internal error: ${error instanceof Error ? error.message : String(error)}`);
    const { status = 500, code = "internal_error", message = "internal error" } = known ?? {};
    send(response, status, JSON.stringify({ code, message }));
  }
}

/** A name may have slashes in it, which are encoded then. */
function patternOf(path: string): RegExp {
  return new RegExp(`^${path.replace(/\{\w+\}/, "([^/]+)")}$`);
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    throw new ApiFailure(400, "invalid_request", "the path is not encoded as a URL is");
  }
}

function authenticate(request: IncomingMessage, token: string): void {
  const [, given] = /^bearer (.+)$/i.exec(request.headers.authorization ?? "") ?? [];
  if (given === undefined) throw new ApiFailure(401, "Unauthorized", "authorization header required");
  const digest = (text: string): Buffer => createHash("sha256").update(text).digest();
  if (!timingSafeEqual(digest(given), digest(token))) throw new ApiFailure(401, "Unauthorized", "invalid token");
}

async function jsonOf(request: IncomingMessage): Promise<Body> {
  const parts: Buffer[] = [];
  let sizeBytes = 0;
  for await (const part of request as AsyncIterable<Buffer>) {
    sizeBytes += part.length;
    if (sizeBytes > MOST_BODY_BYTES) throw new ApiFailure(413, "invalid_request", "the body is larger than 1 MiB");
    parts.push(part);
  }
  const text = Buffer.concat(parts).toString();
  if (text.trim() === "") return {};
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new SchemaFailure("/", "value is no JSON");
  }
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new SchemaFailure("/", "value must be an object");
  return value as Body;
}

function send(response: ServerResponse, status: number, text: string): void {
  if (text === "") response.writeHead(status).end();
  else response.writeHead(status, { "content-type": "application/json" }).end(text);
}

function plain(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, { "content-type": "text/plain; charset=utf-8" }).end(text);
}
