import { type Server, Socket } from "node:net";

/** `_handle` is libuv's handle of a socket or server; null or undefined after close. */
interface Handled<Handle> {
  readonly _handle?: Handle | null;
}

/**
 * The descriptor of a listening server, which is used to detect lost connections, or of a socket, which is used to ask
 * the kernel for unacknowledged data. If it is undefined, lost connections are not logged, and a dead peer is found
 * only by keepalive.
 */
export function descriptorOf(owner: (Server | Socket) & Handled<{ readonly fd?: number }>): number | undefined {
  const fd = owner._handle?.fd;
  return fd === undefined || fd < 0 ? undefined : fd;
}

/**
 * Stops reading the socket below TLS. Otherwise, as with plain Node, a rejected client may see a reset instead of the
 * alert.
 */
export function stopReading(socket: Socket & Handled<{ readonly readStop?: () => void }>): void {
  socket._handle?.readStop?.();
}

/** `_parent` of a TLS socket is the accepted socket, for which a server has no public API. */
interface OverSocket {
  readonly _parent?: object | null;
}

/**
 * The accepted socket below a TLS socket. The listener uses it to find the connection with its peer's address, limits
 * and slot. If it is undefined, TLS connections are closed, so that none evades the limits.
 */
export function socketBelow(socket: object & OverSocket): object | undefined {
  return socket._parent ?? undefined;
}

/** Constructor of Node's internal Pipe class. Type 0 is a stream socket. */
type PipeClass = new (type: 0) => { open(fd: number): number };

/**
 * Creates a socket for the descriptor of an AF_VSOCK stream, a family that Node does not know. libuv's pipes work with
 * any stream socket. If Node does not support this, returns undefined, and the caller keeps the descriptor and has to
 * close it.
 */
export function socketOver(fd: number): Socket | undefined {
  // The class is only reachable through the handle of a pipe, so a pipe is created that never connects.
  const example: Socket & Handled<object> = new Socket();
  example.on("error", () => {}).connect({ path: "/" });
  const Pipe = example._handle?.constructor as PipeClass | undefined;
  example.destroy();
  const handle = Pipe === undefined ? undefined : new Pipe(0);
  if (typeof handle?.open !== "function" || handle.open(fd) !== 0) return undefined;
  return new Socket({ handle, allowHalfOpen: true } as object);
}
