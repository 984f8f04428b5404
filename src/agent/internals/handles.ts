import type { Server, Socket } from "node:net";

/** `_handle`: libuv's side of a socket or server; null or undefined once it is closed. */
interface Handled<Handle> {
  readonly _handle?: Handle | null;
}

/**
 * The descriptor of a server that listens, to see connections that are lost because no descriptor is left. Undefined
 * without it: then nothing is logged of them.
 */
export function descriptorOf(server: Server & Handled<{ readonly fd?: number }>): number | undefined {
  const fd = server._handle?.fd;
  return fd === undefined || fd < 0 ? undefined : fd;
}

/**
 * Stops a socket below TLS from being read. Without it the socket is read on, and a client whose handshake was refused may
 * see a reset in place of the alert, as with Node itself.
 */
export function stopReading(socket: Socket & Handled<{ readonly readStop?: () => void }>): void {
  socket._handle?.readStop?.();
}
