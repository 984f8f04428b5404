import type { ClientHttp2Session } from "node:http2";

/** libuv's side of a socket, which Node does not declare. */
interface WithHandle {
  readonly _handle?: { readStart?(): number } | null;
}

/**
 * Reads a connection that Node may have stopped reading. Otherwise, and on a Node that has no such handle, nothing
 * changes.
 */
export function readAgain({ socket }: ClientHttp2Session): void {
  (socket as WithHandle)._handle?.readStart?.();
}
