import { type ClientRequest, request as requestHttp } from "node:http";
import { request as requestHttps } from "node:https";
import type { Socket } from "node:net";
import { buffer } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";

/**
 * Size of the padding in the `GET /health` that follows each request. It equals the read buffer of the daemon's HTTP
 * server (bufio's 4 KiB; Go 1.26, net/http/server.go:831, bufio.go:19).
 *
 * Without the padding, the server could read the whole GET into its buffer together with the end of the request. During
 * the call, no further byte would then arrive on the connection, and the server would still watch for a disconnect.
 */
const PADDING_BYTES = 4096;
const FOLLOWER_PATH = "/health";

/**
 * A `fetch` for calls that change something. The daemon completes such a call even if this process ends or the
 * connection breaks. Rejects with the connection's error or the signal's reason; even then the daemon completes the
 * call.
 *
 * Normally the daemon's HTTP server (of Go) cancels a request when its client disconnects, and the daemon then leaves
 * an instance Paused forever (hypeman 8853445, lib/instances/standby.go:165). But the server stops watching for a
 * disconnect once it has read a byte that follows the request (net/http/server.go:701-739).
 *
 * Therefore a `GET /health` follows each request in the same write. The answer to this GET is not read, so each call
 * uses a connection of its own. Two requests in one write require HTTP/1.1, so the TLS handshake negotiates HTTP/1.1.
 */
export async function lastingFetch(input: string | URL | Request, init: RequestInit = {}): Promise<Response> {
  const { method = "GET", body, signal } = init;
  const url = new URL(input instanceof Request ? input.url : input);
  const headers = Object.fromEntries(new Headers(init.headers));
  const send = url.protocol === "https:" ? requestHttps : requestHttp;
  // Do not send `connection: close`. With it, the daemon would close the connection right after its answer, without
  // reading the `GET /health` that follows this request. Because of the unread bytes, the kernel would reset the
  // connection, and the answer could be lost.
  const options = {
    method,
    headers: { ...headers, connection: "keep-alive" },
    agent: false,
    signal: signal ?? undefined,
  };
  const request = send(url, options);
  const answer = answerOf(request);
  if (body instanceof ReadableStream)
    streamed(request, body, url).catch((error: unknown) => request.destroy(asError(error)));
  else ended(request, body ?? undefined, url);
  return answer;
}

/**
 * Sends a request whose body is a stream. Holds back the body's last chunk, because the end of the request must be sent
 * in the same write as the `GET /health` that follows the request (see `lastingFetch`). Stops early if the daemon
 * answers before the end of the body.
 */
async function streamed(request: ClientRequest, body: ReadableStream<Uint8Array>, url: URL): Promise<void> {
  let last: Uint8Array | undefined;
  const others = async function* (): AsyncGenerator<Uint8Array> {
    for await (const chunk of body) {
      if (last !== undefined) yield last;
      last = chunk;
    }
  };
  await pipeline(others, request, { end: false });
  ended(request, last, url);
}

function ended(request: ClientRequest, last: unknown, url: URL): void {
  if (request.socket === null) request.once("socket", (socket) => followed(socket, url));
  else followed(request.socket, url);
  request.end(last);
}

/** Corks the socket, so that the end of the request and the request that follows it are sent in one write. */
function followed(socket: Socket, { host }: URL): void {
  socket.cork();
  process.nextTick(() => {
    const padding = "-".repeat(PADDING_BYTES);
    socket.write(`GET ${FOLLOWER_PATH} HTTP/1.1\r\nHost: ${host}\r\nX-Padding: ${padding}\r\n\r\n`);
    socket.uncork();
  });
}

function answerOf(request: ClientRequest): Promise<Response> {
  return new Promise((resolve, reject) => {
    request.on("error", reject);
    request.once("response", (message) => {
      const { statusCode: status = 0, rawHeaders } = message;
      const headers = new Headers();
      for (let at = 0; at + 1 < rawHeaders.length; at += 2)
        headers.append(rawHeaders[at] ?? "", rawHeaders[at + 1] ?? "");
      buffer(message)
        .then((content) => {
          resolve(new Response(content.length === 0 ? null : new Uint8Array(content), { status, headers }));
          request.destroy();
        })
        .catch(reject);
    });
  });
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
