import { closeSync } from "node:fs";
import { createServer, type Server, type ServerOpts, Socket } from "node:net";
import { Budget, type Clock, type Log, type VsockListener, type WatchArrivals } from "../domain/index.ts";
import { descriptorOf, socketBelow, socketOver } from "../internals/index.ts";
import { errnoOf } from "../../shared/errors.ts";
import { listenTcp, listenUnix, type TcpPlace } from "./listen.ts";

/** A verified client certificate. */
export interface PeerCertificate {
  /** Distinguished name, as Node prints it. */
  readonly subject: string;
  /** Start of its validity, milliseconds since 1970. */
  readonly notBeforeMs: number;
  /** End of its validity or of its issuers', whichever is first, milliseconds since 1970. */
  readonly notAfterMs: number;
  /** The certificate and its known issuers, DER. */
  readonly chain: readonly Buffer[];
}

/** A connection, identified by the object itself. */
export interface Connection {
  /** Number of the connection in this process, from 1. For logs. */
  readonly id: number;
  readonly peer: {
    /** `address:port`, `vsock:CID:port`, or "unix". */
    readonly address: string;
    /** Undefined on a connection without TLS. */
    readonly certificate: PeerCertificate | undefined;
  };
}

/** An accepted connection, from accept(2) to its end. */
export class AcceptedConnection implements Connection {
  /** 0 until it is established. */
  id = 0;
  readonly peer: { readonly address: string; certificate: PeerCertificate | undefined };
  /** As accepted. */
  readonly socket: Socket;
  /** Frees its place: its end has begun, although its socket is still open. */
  readonly closing: () => void;
  readonly #log: (connection: AcceptedConnection, reason: string) => void;
  #isLogged = false;
  /** Its handshake is not complete. */
  isHalfOpen = true;
  /** No new connection takes its place, unless its client has been silent for long. */
  isKept = false;
  /** For how long its client has not answered, in milliseconds; 0: it answers. */
  silentMs: () => number = () => 0;

  constructor(socket: Socket, log: (connection: AcceptedConnection, reason: string) => void, closing: () => void) {
    this.socket = socket;
    this.#log = log;
    this.closing = closing;
    this.peer = { address: peerAddress(socket), certificate: undefined };
    // "close" follows an error; the code that knows the reason reports it.
    socket.on("error", () => {});
  }

  /** Closes it at once and logs why: as refused, or as failed if it was established. Later calls do nothing. */
  drop(reason: string): void {
    this.failed(reason);
    this.destroy();
  }

  destroy(): void {
    Socket.prototype.destroy.call(this.socket);
  }

  /** Logs why it is refused or has failed, never a secret; the caller closes it. */
  failed(reason: string): void {
    if (this.#isLogged) return;
    this.#isLogged = true;
    this.#log(this, reason);
  }
}

/** Before an IPv4 address, on a listener for both versions (RFC 4291, 2.5.5.2). */
const MAPPED = "::ffff:";

function peerAddress(socket: Socket & MarkedSocket): string {
  const { remoteAddress, remotePort } = socket;
  if (remoteAddress === undefined || remotePort === undefined) return socket[VSOCK_PEER] ?? "unix";
  // No regular expression: V8 would compile it in every clone of a snapshot, where it touches 80 pages (decision 0020).
  const isMapped = remoteAddress.startsWith(MAPPED) && remoteAddress.includes(".");
  const address = isMapped ? remoteAddress.slice(MAPPED.length) : remoteAddress;
  return address.includes(":") ? `[${address}]:${remotePort}` : `${address}:${remotePort}`;
}

const CONNECTION: unique symbol = Symbol("connection");
const VSOCK_PEER: unique symbol = Symbol("vsock peer");

/** A socket with its connection, and over vsock with its peer's address. */
type MarkedSocket = object & { [CONNECTION]?: AcceptedConnection; [VSOCK_PEER]?: string };

/** The host's address (VMADDR_CID_HOST of vsock(7)). */
const HOST_CID = 2;

/** The connection of an accepted socket, or of the TLS socket over it. */
export function connectionOf(socket: MarkedSocket): AcceptedConnection | undefined {
  const below: MarkedSocket | undefined = socketBelow(socket);
  return socket[CONNECTION] ?? below?.[CONNECTION];
}

/** What an acceptor needs. */
export interface AcceptorOptions {
  /** Name of the listener, for the log. */
  readonly name: string;
  /** Most connections at once. */
  readonly limit: number;
  /** At the limit a new connection replaces a kept one whose client has been silent for this long. Default: none. */
  readonly evictAfterSilentMs?: number;
  /** Connections over the limit that get as far as a call, which may be refused. Default: none. */
  readonly surplus?: number;
  readonly log: Log;
  readonly clock: Clock;
  /** Undefined: connections that are lost because no descriptor is left are not logged. */
  readonly watchArrivals?: WatchArrivals | undefined;
}

/** Log lines at once, and a second in the long run: the workload can cause refusals as fast as it likes. */
const LINES_BURST = 20;
const LINES_PER_SECOND = 2;
/** Least time between two lines about lost connections: one for each would flood the log. */
const SILENCE_MS = 10_000;

/**
 * Accepts a bounded number of a listener's connections. At the bound a new one is a surplus one. Its first admitted
 * call gets the place of a half-open handshake or of a connection without an admitted call, which is then surplus
 * itself; else that of the connection whose client has been silent for longest and for too long, which is closed. If
 * there is none, the call is refused with the reason. Once the surplus is full too, a new connection closes the first
 * of these instead, or the oldest surplus one. So a peer that can connect but not call cannot lock the node agent out,
 * and clients that connect at the same time do not close each other's handshakes.
 */
export class Acceptor {
  readonly server: Server;
  readonly #options: AcceptorOptions;
  readonly #lines: Budget;
  #suppressed = 0;
  readonly #open = new Set<AcceptedConnection>();
  /** Connections without a place, the oldest first. */
  readonly #surplus = new Set<AcceptedConnection>();
  /** Connections whose end has begun. Each has its own deadline. */
  readonly #closing = new Set<AcceptedConnection>();
  #stopWatching: (() => void) | undefined;
  #removeSocket: (() => void) | undefined;
  #vsock: VsockListener | undefined;

  /** @param accepted is called with each connection that is let in */
  constructor(options: AcceptorOptions, sockets: ServerOpts, accepted: (connection: AcceptedConnection) => void) {
    const { name, log, clock } = options;
    this.#options = options;
    this.#lines = new Budget(LINES_BURST, LINES_PER_SECOND, clock.monotonicMs());
    this.server = createServer(sockets, (socket) => {
      const connection = this.#admit(socket);
      if (connection !== undefined) accepted(connection);
    });
    this.server.on("listening", () => this.#watchLost());
    // A failed accept(2) is not the end of the listener. A failed bind(2) or listen(2) is, and listenTcp throws it.
    this.server.on("error", (error) => {
      if (this.server.listening) log.warn("accept_failed", { listener: name, errno: errnoOf(error) });
    });
  }

  /** Open sockets, also of connections whose end has begun. */
  get sockets(): number {
    return this.#open.size + this.#surplus.size + this.#closing.size;
  }

  /** Listens on a TCP port: see `listenTcp`. */
  listenTcp(place: TcpPlace): Promise<number> {
    return listenTcp(this.server, place);
  }

  /** Listens on a unix socket. Throws AgentError when it cannot. */
  async listenUnix(path: string, mode: number): Promise<void> {
    this.#removeSocket = await listenUnix(this.server, path, mode);
  }

  /**
   * Accepts connections of a vsock port from the host alone. A loopback connection (CID 1, or the guest's own CID)
   * would let every process of the guest call.
   */
  acceptVsock(listener: VsockListener): void {
    const { name, log } = this.#options;
    this.#vsock = listener;
    listener.start(
      ({ fd, cid, port }) => {
        const address = `vsock:${cid}:${port}`;
        const socket: (Socket & MarkedSocket) | undefined = cid === HOST_CID ? socketOver(fd) : undefined;
        if (socket === undefined) {
          closeSync(fd);
          const reason = cid === HOST_CID ? "this Node cannot read vsock" : "the peer is not the host (CID 2)";
          this.#logRefused("connection_refused", address, reason);
          return;
        }
        socket[VSOCK_PEER] = address;
        this.server.emit("connection", socket);
      },
      (errno) => log.warn("accept_failed", { listener: name, errno }),
    );
  }

  /** Accepts no more connections. */
  stop(): void {
    this.server.close();
    this.#vsock?.close();
    this.#stopWatching?.();
    this.#removeSocket?.();
  }

  dropHalfOpen(reason: string): void {
    for (const connection of [...this.#open, ...this.#surplus]) if (connection.isHalfOpen) connection.drop(reason);
  }

  destroy(): void {
    for (const connection of [...this.#open, ...this.#surplus, ...this.#closing]) connection.destroy();
  }

  /** Whether a connection has a place. A surplus one gets it as soon as there is one. Call it for an admitted call. */
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

  /** Admits a connection; undefined: it was refused. */
  #admit(socket: Socket & MarkedSocket): AcceptedConnection | undefined {
    const connection = new AcceptedConnection(socket, this.#logFailed, () => {
      if (this.#open.delete(connection) || this.#surplus.delete(connection)) this.#closing.add(connection);
    });
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

  /** Where a new connection goes, if need be in place of another; undefined: it is refused. */
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

  /** The connection that another one may replace, and why it is that one. */
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
    const isRefused = connection.isHalfOpen || this.#surplus.has(connection);
    this.#logRefused(isRefused ? "connection_refused" : "connection_failed", connection.peer.address, reason);
  };

  #logRefused(event: "connection_refused" | "connection_failed", peer: string, reason: string): void {
    const { name, log, clock } = this.#options;
    if (!this.#lines.spend(clock.monotonicMs())) {
      this.#suppressed++;
      return;
    }
    const suppressed = this.#suppressed === 0 ? undefined : this.#suppressed;
    this.#suppressed = 0;
    log.warn(event, { listener: name, peer, reason, suppressed });
  }

  /**
   * Logs `accept_failed` when connections arrive while no descriptor is left. libuv then accepts them with a reserved
   * one and closes them at once, without an event. The socket stays open until the watch is stopped.
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
      silentUntilMs = nowMs + SILENCE_MS;
      log.warn("accept_failed", { listener: name, errno });
    });
  }
}
