import { type Server, Socket } from "node:net";

/** `_handle`: libuv's side of a socket or server; null or undefined once it is closed. */
interface Handled<Handle> {
  readonly _handle?: Handle | null;
}

/**
 * The descriptor of a listening server, to see connections that are lost for lack of one, or of a socket, to ask its
 * kernel about the peer. Without it lost connections are not logged, and a lost peer is found by keepalive alone.
 */
export function descriptorOf(owner: (Server | Socket) & Handled<{ readonly fd?: number }>): number | undefined {
  const fd = owner._handle?.fd;
  return fd === undefined || fd < 0 ? undefined : fd;
}

/** Stops the reading below TLS. Without it a refused client may see a reset in place of the alert, as with Node. */
export function stopReading(socket: Socket & Handled<{ readonly readStop?: () => void }>): void {
  socket._handle?.readStop?.();
}

/** `_parent` of a TLS socket: the accepted socket below it, to which a server has no public way. */
interface OverSocket {
  readonly _parent?: object | null;
}

/**
 * The accepted socket below a TLS socket, by which the listener finds its connection, and with it the address, limits
 * and place of the peer. Undefined without it: then TLS connections are closed, so that none escapes the limits.
 */
export function socketBelow(socket: object & OverSocket): object | undefined {
  return socket._parent ?? undefined;
}

/** A constructor of libuv's pipes, as Node has it: 0 is a connection. */
type PipeClass = new (type: 0) => { open(fd: number): number };

/**
 * A socket over the descriptor of a stream that Node does not know (AF_VSOCK). Node has sockets of two families alone,
 * but libuv's pipes work with any stream socket. Undefined, and the descriptor is still the caller's, where Node does
 * not offer this: then vsock connections are closed.
 */
export function socketOver(fd: number): Socket | undefined {
  // Only a pipe's handle has the class. This one never connects.
  const example: Socket & Handled<object> = new Socket();
  example.on("error", () => {}).connect({ path: "/" });
  const Pipe = example._handle?.constructor as PipeClass | undefined;
  example.destroy();
  const handle = Pipe === undefined ? undefined : new Pipe(0);
  if (typeof handle?.open !== "function" || handle.open(fd) !== 0) return undefined;
  return new Socket({ handle, allowHalfOpen: true } as object);
}
