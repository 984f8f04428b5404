import type { ClientHttp2Session } from "node:http2";

/** Node's handle of a socket, which Node's types do not declare. */
interface WithHandle {
  readonly _handle?: { readStart?(): number } | null;
}

/**
 * Makes Node read from a connection again, in case it has stopped. Does nothing if Node is already reading, or if this
 * version of Node keeps the socket's handle elsewhere.
 */
export function readAgain({ socket }: ClientHttp2Session): void {
  (socket as WithHandle)._handle?.readStart?.();
}
