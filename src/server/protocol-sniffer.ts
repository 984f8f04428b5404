import type { Socket } from "node:net";

/** What a client that speaks HTTP/2 without negotiation sends first (RFC 9113, 3.4). */
const HTTP2_PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "latin1");

/**
 * Tells HTTP/2 from HTTP/1 by the first bytes and leaves them in the socket for whoever reads it next. Calls back once,
 * or never when the connection ends before that.
 */
export function sniffProtocol(socket: Socket, found: (protocol: "http1" | "http2") => void): void {
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
