import { createServer, type Server, type ServerOpts, Socket } from "node:net";
import { Budget, type Clock, type Log, type VsockPeer, type WatchArrivals } from "../domain/index.ts";
import { descriptorOf, socketBelow } from "../internals/index.ts";
import { errnoOf } from "../../shared/errors.ts";
import { listenTcp, listenUnix, listenVsock, type TcpAddress } from "./listen.ts";

/** A verified client certificate. */
export interface PeerCertificate {
  /** Distinguished name in the format of Node. */
  readonly subject: string;
  /** Start of the certificate's validity, in milliseconds since 1970. */
  readonly notBeforeMs: number;
  /** Earliest expiry of the certificate and all its issuers, in milliseconds since 1970. */
  readonly notAfterMs: number;
  /** The certificate and its known issuers, in DER. */
  readonly chain: readonly Buffer[];
}

/** A connection. Connections are compared by object identity. */
export interface Connection {
  /** Number of the connection in this process, for logs. The first connection has the number 1. */
  readonly id: number;
  readonly peer: {
    /** `address:port`, `vsock:CID:port`, or "unix". */
    readonly address: string;
    /** The client's certificate; undefined on a connection without TLS. */
    readonly certificate: PeerCertificate | undefined;
  };
}

/** An accepted connection, from accept(2) until its socket is closed. */
export class AcceptedConnection implements Connection {
  /** Number of the connection, for logs; 0 until the connection is established. */
  id = 0;
  readonly peer: { readonly address: string; certificate: PeerCertificate | undefined };
  /** The socket as accepted, below TLS. */
  readonly socket: Socket;
  /**
   * Call this when you begin to close the connection. From then on it does not count towards the limit, although its
   * socket is still open.
   */
  readonly closing: () => void;
  readonly #log: (connection: AcceptedConnection, reason: string) => void;
  #isLogged = false;
  /** Whether the connection is not established yet; with TLS this means that its handshake is not complete. */
  isHalfOpen = true;
  /**
   * Whether a call of this connection was admitted. If so, the connection is protected: it loses its place only if its
   * client has been silent for at least `evictAfterSilentMs`.
   */
  isKept = false;
  /** For how many milliseconds the client's kernel has not acknowledged data; 0 if it has acknowledged everything. */
  silentMs: () => number = () => 0;

  /** @param address see `peer.address` */
  constructor(
    socket: Socket,
    address: string,
    log: (connection: AcceptedConnection, reason: string) => void,
    closing: () => void,
  ) {
    this.socket = socket;
    this.#log = log;
    this.closing = closing;
    this.peer = { address, certificate: undefined };
    // Errors are not logged here: every "error" event is followed by "close", and the code that knows the reason logs
    // it.
    socket.on("error", () => {});
  }

  /** Whether the connection came over vsock, and so from the host: all other vsock connections are refused. */
  get isVsock(): boolean {
    return this.peer.address.startsWith("vsock:");
  }

  /** Closes the connection at once. Logs the reason, unless a reason was logged before. */
  drop(reason: string): void {
    this.failed(reason);
    this.destroy();
  }

  destroy(): void {
    Socket.prototype.destroy.call(this.socket);
  }

  /**
   * Logs why the connection is refused or has failed. `reason` must not contain a secret. The caller closes the
   * connection.
   */
  failed(reason: string): void {
    if (this.#isLogged) return;
    this.#isLogged = true;
    this.#log(this, reason);
  }
}

/** Prefix of the address of an IPv4 client on a socket that accepts IPv4 and IPv6 (RFC 4291, 2.5.5.2). */
const MAPPED_IPV4_PREFIX = "::ffff:";

function peerAddress({ remoteAddress, remotePort }: Socket): string {
  if (remoteAddress === undefined || remotePort === undefined) return "unix";
  // A regular expression would be compiled in every clone of a snapshot, which touches 80 pages of memory (decision
  // 0020).
  const isMapped = remoteAddress.startsWith(MAPPED_IPV4_PREFIX) && remoteAddress.includes(".");
  const address = isMapped ? remoteAddress.slice(MAPPED_IPV4_PREFIX.length) : remoteAddress;
  return address.includes(":") ? `[${address}]:${remotePort}` : `${address}:${remotePort}`;
}

const CONNECTION: unique symbol = Symbol("connection");

type SocketWithConnection = object & { [CONNECTION]?: AcceptedConnection };

/** The host's CID (VMADDR_CID_HOST of vsock(7)). */
const HOST_CID = 2;

/** Returns the connection of an accepted socket, or of a TLS socket that wraps an accepted socket. */
export function connectionOf(socket: SocketWithConnection): AcceptedConnection | undefined {
  const below: SocketWithConnection | undefined = socketBelow(socket);
  return socket[CONNECTION] ?? below?.[CONNECTION];
}

export interface AcceptorOptions {
  readonly name: string;
  /** Limit for connections that are not surplus connections (see Acceptor). */
  readonly limit: number;
  /**
   * How long the client of a protected connection (`isKept`) must be silent before another connection may take its
   * place. By default, a protected connection never loses its place.
   */
  readonly evictAfterSilentMs?: number;
  /** Limit for surplus connections, which are accepted in addition to `limit` (see Acceptor). Default: 0. */
  readonly surplus?: number;
  readonly log: Log;
  readonly clock: Clock;
  /**
   * Detects connections that the agent cannot accept because it has no free descriptor. If undefined, such lost
   * connections are not logged.
   */
  readonly watchArrivals?: WatchArrivals | undefined;
}

/** Limits for log lines about refused connections, because the workload can cause refusals at any rate. */
const LINES_BURST = 20;
const LINES_PER_SECOND = 2;
/** Minimum time between two log lines about lost connections. */
const LOST_LINE_INTERVAL_MS = 10_000;

/**
 * Accepts a bounded number of connections of a listener. The first `limit` connections get a place. Further connections
 * are surplus connections, which have no place. When a call of a surplus connection is to be admitted, the connection
 * needs a place. The first rule that applies decides:
 *
 * - If a place is free, the connection takes it.
 * - If another connection has a place but no admitted call, that connection gives up its place and becomes a surplus
 *   connection.
 * - The connection whose client has been silent for the longest time is closed, if this time is at least
 *   `evictAfterSilentMs`. The surplus connection takes its place.
 * - Otherwise the call is refused.
 *
 * When all places are taken and the limit of surplus connections is reached, too, each new connection closes another
 * one: a connection that could lose its place, or else the oldest surplus connection.
 *
 * So a peer that cannot make calls (such as the workload) cannot lock out the node agent. Clients that connect at the
 * same time do not close each other's handshakes.
 */
export class Acceptor {
  readonly server: Server;
  readonly #options: AcceptorOptions;
  readonly #lines: Budget;
  #suppressed = 0;
  readonly #open = new Set<AcceptedConnection>();
  /** Surplus connections, the oldest first. They do not count towards `limit`. */
  readonly #surplus = new Set<AcceptedConnection>();
  /** Connections that are being closed, but whose sockets are still open. Each connection has its own deadline. */
  readonly #closing = new Set<AcceptedConnection>();
  #stopWatching: (() => void) | undefined;
  #removeSocket: (() => void) | undefined;
  #vsockPeer: VsockPeer | undefined;

  /** @param accepted a callback, which gets each connection that is not refused */
  constructor(options: AcceptorOptions, sockets: ServerOpts, accepted: (connection: AcceptedConnection) => void) {
    const { name, log, clock } = options;
    this.#options = options;
    this.#lines = new Budget(LINES_BURST, LINES_PER_SECOND, clock.monotonicMs());
    this.server = createServer(sockets, (socket) => {
      const connection = this.#admit(socket);
      if (connection !== undefined) accepted(connection);
    });
    this.server.on("listening", () => this.#watchLost());
    // Node emits "error" when accept(2), bind(2) or listen(2) has failed. After a failed accept(2), the server still
    // listens; only this error is logged here. The other errors are thrown by listenTcp.
    this.server.on("error", (error) => {
      if (this.server.listening) log.warn("accept_failed", { listener: name, errno: errnoOf(error) });
    });
  }

  /** Number of open sockets, including the sockets of connections that are being closed. */
  get sockets(): number {
    return this.#open.size + this.#surplus.size + this.#closing.size;
  }

  listenTcp(place: TcpAddress): Promise<number> {
    return listenTcp(this.server, place);
  }

  /** Listens on a unix socket. Throws AgentError on failure. */
  async listenUnix(path: string, mode: number): Promise<void> {
    this.#removeSocket = await listenUnix(this.server, path, mode);
  }

  /**
   * Accepts connections on a listening vsock socket, but only from the host. Loopback connections (CID 1, or the
   * guest's own CID) are refused, because any process of the guest can make them. Throws AgentError on failure.
   */
  listenVsock(fd: number, peer: VsockPeer): Promise<void> {
    this.#vsockPeer = peer;
    return listenVsock(this.server, fd);
  }

  stop(): void {
    this.server.close();
    this.#stopWatching?.();
    this.#removeSocket?.();
  }

  dropHalfOpen(reason: string): void {
    for (const connection of [...this.#open, ...this.#surplus]) if (connection.isHalfOpen) connection.drop(reason);
  }

  destroy(): void {
    for (const connection of [...this.#open, ...this.#surplus, ...this.#closing]) connection.destroy();
  }

  /**
   * Call it for each call that is to be admitted. If its connection is a surplus connection, gives this connection a
   * free place, or the place of another connection that may lose it. Returns whether the connection now has a place.
   */
  hasPlace(connection: AcceptedConnection): boolean {
    if (!this.#surplus.has(connection)) return true;
    if (this.#open.size >= this.#options.limit) {
      const replaceable = this.#replaceable();
      if (replaceable === undefined) {
        connection.failed(this.#limitReached);
        return false;
      }
      const [other] = replaceable;
      if (other.isKept) this.#evict(...replaceable);
      else {
        this.#open.delete(other);
        this.#surplus.add(other);
      }
    }
    this.#surplus.delete(connection);
    this.#open.add(connection);
    return true;
  }

  get #limitReached(): string {
    return `connection limit (${this.#options.limit}) reached`;
  }

  /** Admits a connection. Returns undefined if the connection was refused. */
  #admit(socket: Socket & SocketWithConnection): AcceptedConnection | undefined {
    const vsockPeer = this.#vsockPeer?.(descriptorOf(socket) ?? -1);
    if (typeof vsockPeer === "number") {
      // The peer has already disconnected.
      socket.destroy();
      return undefined;
    }
    const address = vsockPeer === undefined ? peerAddress(socket) : `vsock:${vsockPeer.join(":")}`;
    const connection = new AcceptedConnection(socket, address, this.#logFailed, () => {
      if (this.#open.delete(connection) || this.#surplus.delete(connection)) this.#closing.add(connection);
    });
    if (vsockPeer !== undefined && vsockPeer[0] !== HOST_CID) {
      connection.drop("the peer is not the host (CID 2)");
      return undefined;
    }
    const place = this.#placeForNew();
    if (place === undefined) {
      connection.drop(this.#limitReached);
      return undefined;
    }
    place.add(connection);
    socket[CONNECTION] = connection;
    socket.once("close", () => {
      this.#open.delete(connection);
      this.#surplus.delete(connection);
      this.#closing.delete(connection);
    });
    return connection;
  }

  /**
   * Returns the set to which the caller must add a new connection: `#open` if it has room, otherwise `#surplus`. If
   * both are full, makes room by closing another connection. If none may be closed, returns undefined: the caller must
   * refuse the new connection.
   */
  #placeForNew(): Set<AcceptedConnection> | undefined {
    const { limit, surplus = 0 } = this.#options;
    if (this.#open.size < limit) return this.#open;
    if (this.#surplus.size < surplus) return this.#surplus;
    const replaceable = this.#replaceable();
    if (replaceable !== undefined) {
      this.#evict(...replaceable);
      return this.#open;
    }
    const [oldest] = this.#surplus;
    if (oldest === undefined) return undefined;
    oldest.drop(this.#limitReached);
    oldest.closing();
    return this.#surplus;
  }

  #evict(connection: AcceptedConnection, why: string): void {
    connection.drop(`evicted for a new connection: ${why}`);
    connection.closing();
  }

  /** Returns the connection that must make room for another one, and why (for the log). Undefined if there is none. */
  #replaceable(): readonly [connection: AcceptedConnection, why: string] | undefined {
    const { evictAfterSilentMs = Number.POSITIVE_INFINITY } = this.#options;
    let silent: AcceptedConnection | undefined;
    let unproven: AcceptedConnection | undefined;
    let longestMs = 0;
    for (const connection of this.#open) {
      if (connection.isHalfOpen) return [connection, "handshake not complete"];
      if (!connection.isKept) unproven ??= connection;
      const silentMs = connection.silentMs();
      if (silentMs < evictAfterSilentMs || silentMs <= longestMs) continue;
      silent = connection;
      longestMs = silentMs;
    }
    if (unproven !== undefined) return [unproven, "no call was authenticated"];
    return silent && [silent, `its client has not answered for ${Math.round(longestMs / 1_000)} s`];
  }

  /** Logs at a bounded rate. `suppressed` in a line counts the lines that were left out before it. */
  readonly #logFailed = (connection: AcceptedConnection, reason: string): void => {
    const { name, log, clock } = this.#options;
    if (!this.#lines.spend(clock.monotonicMs())) {
      this.#suppressed++;
      return;
    }
    const isRefused = connection.isHalfOpen || this.#surplus.has(connection);
    const suppressed = this.#suppressed === 0 ? undefined : this.#suppressed;
    this.#suppressed = 0;
    log.warn(isRefused ? "connection_refused" : "connection_failed", {
      listener: name,
      peer: connection.peer.address,
      reason,
      suppressed,
    });
  };

  /**
   * Logs `accept_failed` when connections arrive while the agent has no free descriptor. This needs a watch, because
   * libuv closes such connections at once and Node emits no event. The watch uses a duplicate of the listening
   * descriptor, so the listening socket stays open until the watch is stopped.
   */
  #watchLost(): void {
    const { name, log, clock, watchArrivals } = this.#options;
    this.#stopWatching?.();
    const fd = descriptorOf(this.server);
    if (fd === undefined) return;
    let silentUntilMs = Number.NEGATIVE_INFINITY;
    this.#stopWatching = watchArrivals?.(fd, (errno) => {
      const nowMs = clock.monotonicMs();
      if (nowMs < silentUntilMs) return;
      silentUntilMs = nowMs + LOST_LINE_INTERVAL_MS;
      log.warn("accept_failed", { listener: name, errno });
    });
  }
}
