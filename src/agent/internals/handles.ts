import { type Server, Socket } from "node:net";

/** `_handle` is libuv's handle of a socket or server; null or undefined after close. */
interface Handled<Handle> {
  readonly _handle?: Handle | null;
}

/**
 * Returns the descriptor of a listening server or of a socket. The agent uses a server's descriptor to detect lost
 * connections, and a socket's descriptor to ask the kernel for unacknowledged data. If the descriptor is undefined,
 * lost connections are not logged, and a dead peer is found only by keepalive.
 */
export function descriptorOf(owner: (Server | Socket) & Handled<{ readonly fd?: number }>): number | undefined {
  const fd = owner._handle?.fd;
  return fd === undefined || fd < 0 ? undefined : fd;
}

/**
 * Stops reading from the accepted socket below a TLS socket. After a failed handshake, FailedHandshakeLinger then keeps
 * the accepted socket open for a short time, so that the client can read the TLS alert. If this version of Node lacks
 * the private function, the client may see a reset instead of the alert, as with Node's own TLS server.
 */
export function stopReading(socket: Socket & Handled<{ readonly readStop?: () => void }>): void {
  socket._handle?.readStop?.();
}

/** `_parent` of a TLS socket is the accepted socket. Node has no public API with which a server can find it. */
interface OverSocket {
  readonly _parent?: object | null;
}

/**
 * Returns the accepted socket below a TLS socket, or undefined if Node does not provide it any more. By the accepted
 * socket, the listener finds the connection, which has the peer's address and counts towards the limits. Without it the
 * agent closes the TLS connection, so that no connection evades the limits.
 */
export function socketBelow(socket: object & OverSocket): object | undefined {
  return socket._parent ?? undefined;
}

/** Constructor of Node's internal TCP class. Type 1 is a listening socket. */
type TcpClass = new (type: 1) => { open(fd: number): number };

/**
 * Creates a handle with which `Server.listen` accepts connections of the AF_VSOCK socket `fd`. Node does not know
 * AF_VSOCK, but libuv's TCP handles work with any stream socket. The accepted sockets have the remote address "". Takes
 * ownership of `fd`. Returns undefined if this version of Node does not support this.
 */
export function listeningHandle(fd: number): object | undefined {
  // Node's class TCP can be reached only as the constructor of a socket's handle. This socket is destroyed before it
  // connects.
  const example: Socket & Handled<object> = new Socket();
  example.connect({ host: "127.0.0.1", port: 1 });
  const Tcp = example._handle?.constructor as TcpClass | undefined;
  example.destroy();
  const handle = Tcp === undefined ? undefined : new Tcp(1);
  return typeof handle?.open === "function" && handle.open(fd) === 0 ? handle : undefined;
}
