import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";

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
export function departure(request: IncomingMessage, response: ServerResponse): AbortSignal {
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
