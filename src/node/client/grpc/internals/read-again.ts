import type { ClientHttp2Session } from "node:http2";

/** Node's handle of a socket, which Node's types do not declare. */
interface WithHandle {
  readonly _handle?: { readStart?(): number } | null;
}

/**
 * Restarts reading on a connection, in case Node has stopped. Does nothing if Node is reading already, or if this
 * version of Node has no such handle.
 */
export function readAgain({ socket }: ClientHttp2Session): void {
  (socket as WithHandle)._handle?.readStart?.();
}
