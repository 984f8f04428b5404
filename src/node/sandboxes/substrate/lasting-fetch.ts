import { type ClientRequest, request as requestHttp } from "node:http";
import { request as requestHttps } from "node:https";
import type { Socket } from "node:net";
import { buffer } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";

/**
 * Longer than what the daemon's server may have read ahead of a request's end: bufio's 4 KiB (Go 1.26,
 * net/http/server.go:831, bufio.go:19). Bytes in that buffer are not looked at while a call goes on.
 */
const PADDING_BYTES = 4096;
const FOLLOWER_PATH = "/health";

/**
 * `fetch` for a call that changes something: the daemon carries it out even if this process ends, or its connection. Go
 * cancels a request whose client goes away, and the daemon then leaves an instance Paused for ever (hypeman 8853445,
 * lib/instances/standby.go:165). But Go stops looking for that once it has read a byte behind the request
 * (net/http/server.go:701-739). So `GET /health` is written behind it, in one write, on a connection of its own. Its
 * answer is not read.
 *
 * Only HTTP/1.1 can do so, which is also what TLS agrees on here. Rejects with the connection's error, or the reason of
 * the signal: then the daemon goes on all the same.
 */
export async function lastingFetch(input: string | URL | Request, init: RequestInit = {}): Promise<Response> {
  const { method = "GET", body, signal } = init;
  const url = new URL(input instanceof Request ? input.url : input);
  const headers = Object.fromEntries(new Headers(init.headers));
  const send = url.protocol === "https:" ? requestHttps : requestHttp;
  // "close" would have the daemon end the connection over the unread request, and its answer could be lost.
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

/** Sends all but the last chunk, and that with the request behind it. Stops where the daemon answers before. */
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

/** Holds back what is written, until the request and the one behind it can be written at once. */
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
