import { type Server, Socket } from "node:net";

/** `_handle` is libuv's handle of a socket or server; null or undefined after close. */
interface Handled<Handle> {
  readonly _handle?: Handle | null;
}

/**
 * Returns the descriptor of a listening server or of a socket; undefined after close, or if Node no longer provides it.
 * Without a server's descriptor, the agent does not log lost connections. Without a socket's descriptor, it detects a
 * dead peer only by keepalive.
 */
export function descriptorOf(owner: (Server | Socket) & Handled<{ readonly fd?: number }>): number | undefined {
  const fd = owner._handle?.fd;
  return fd === undefined || fd < 0 ? undefined : fd;
}

/**
 * Stops reading from the accepted socket below a TLS socket. FailedHandshakeLinger needs this to let the client read
 * the TLS alert. If Node lacks the private function, the client may see a reset instead of the alert.
 */
export function stopReading(socket: Socket & Handled<{ readonly readStop?: () => void }>): void {
  socket._handle?.readStop?.();
}

/** `_parent` of a TLS socket is the accepted socket. Node has no public API with which a server can find it. */
interface OverSocket {
  readonly _parent?: object | null;
}

/**
 * Returns the accepted socket below a TLS socket; undefined if Node no longer provides it. The listener then closes the
 * TLS connection, because it cannot apply the connection limits to it.
 */
export function socketBelow(socket: object & OverSocket): object | undefined {
  return socket._parent ?? undefined;
}

/** Constructor of Node's internal TCP class. Its argument 1 makes the new handle a listening socket. */
type TcpClass = new (type: 1) => { open(fd: number): number };

/**
 * Creates a handle for `Server.listen` from the listening AF_VSOCK socket `fd`, and takes ownership of `fd`. Node does
 * not know AF_VSOCK, but libuv's TCP handles work with any stream socket. Returns undefined if this version of Node
 * does not support this.
 */
export function listeningHandle(fd: number): object | undefined {
  // Node exposes its TCP class only as the constructor of a socket's handle. The example socket is destroyed before it
  // connects.
  const example: Socket & Handled<object> = new Socket();
  example.connect({ host: "127.0.0.1", port: 1 });
  const Tcp = example._handle?.constructor as TcpClass | undefined;
  example.destroy();
  const handle = Tcp === undefined ? undefined : new Tcp(1);
  return typeof handle?.open === "function" && handle.open(fd) === 0 ? handle : undefined;
}
