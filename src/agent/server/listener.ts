import type { Server, Socket } from "node:net";
import type { Server as TlsServer, TLSSocket } from "node:tls";
import { type Clock, CONNECTION_LIMIT, HANDSHAKE_TIMEOUT_MS, type Log, type WatchArrivals } from "../domain/index.ts";
import { errnoOf } from "../../shared/errors.ts";
import { Http2Connection, type Http2Limits, Pace, type PingLimits, type SecretField } from "../http2/index.ts";
import {
  type AcceptedConnection,
  Acceptor,
  type Connection,
  connectionOf,
  type PeerCertificate,
} from "../listening/index.ts";
import type { Interceptor, Router } from "../rpc/index.ts";
import { FailedHandshakeLinger } from "./failed-handshake-linger.ts";
import { handshakeFailure, peerCertificate } from "./tls.ts";

/** What all listeners share. */
export interface ListenersOptions {
  readonly router: Router;
  /** The field of requests with the token (see tokenField). Undefined: there is none. */
  readonly tokenField?: SecretField;
  readonly log: Log;
  readonly clock: Clock;
  /** Undefined: connections that are lost because no descriptor is left are not logged. */
  readonly watchArrivals?: WatchArrivals;
}

/** Options of a listener. */
export interface ListenerOptions extends ListenersOptions {
  /** For the log: "tcp" or "unix". */
  readonly name: string;
  /** Makes the TLS handshakes; undefined: no TLS. */
  readonly secure: TlsServer | undefined;
  readonly interceptor: Interceptor;
  /** False: the authority of a verified certificate was replaced during the handshake. */
  readonly isVouchedFor: (certificate: PeerCertificate) => boolean;
  readonly limits: ServerLimits;
  /** Numbers the established connections of all listeners. */
  readonly nextConnectionId: () => number;
}

/** How long requests on an unwanted connection may go on, and how long the connection may stay open at all. */
const UNWANTED_GRACE_MS = 3_000;
const UNWANTED_LIMIT_MS = 4_500;

/**
 * Accepts connections, bounds them, and passes their requests to the router. `AcceptedConnection.drop` ends one during
 * its handshake; after that `Http2Connection` does.
 */
export class Listener {
  readonly #options: ListenerOptions;
  readonly #acceptor: Acceptor;
  /** Established connections. */
  readonly #served = new Map<AcceptedConnection, Http2Connection>();
  /** Connections with an Http2Connection, served or refused, whose sockets are not closed yet. */
  #ending = 0;
  readonly #whenEmpty: (() => void)[] = [];
  readonly #pace = new Pace();
  readonly #failedHandshakes = new FailedHandshakeLinger();

  constructor(options: ListenerOptions) {
    const { limits, secure } = options;
    this.#options = options;
    this.#acceptor = new Acceptor(
      { ...options, limit: limits.connections },
      // Half-open: Http2Connection decides when a connection ends.
      { noDelay: true, allowHalfOpen: true },
      (connection) => {
        if (secure === undefined) {
          this.#serve(connection.socket, connection, undefined);
          return;
        }
        // A peer that leaves during its handshake is gone: do not wait for the handshake's time limit.
        connection.socket.allowHalfOpen = false;
        this.#failedHandshakes.hold(connection.socket);
        secure.emit("connection", connection.socket);
      },
    );
    secure?.on("secureConnection", (socket: TLSSocket) => this.#onSecured(socket));
    secure?.on("tlsClientError", (error: Error, socket: TLSSocket) => {
      const connection = connectionOf(socket);
      if (connection !== undefined) this.#onFailedHandshake(connection, error);
    });
  }

  /** Listens wherever the owner says. */
  get server(): Server {
    return this.#acceptor.server;
  }

  /** Open sockets, in whatever state. */
  get sockets(): number {
    return this.#acceptor.sockets;
  }

  /** Ends half-open handshakes, and every connection but `keep`, which ends after its requests. Returns how many. */
  dropOthers(keep: Connection | undefined): number {
    this.#acceptor.dropHalfOpen("half-open while the connections were renewed");
    let dropped = 0;
    for (const [connection, http2] of this.#served) {
      if (connection === keep) {
        http2.drain();
        continue;
      }
      http2.cut();
      dropped++;
    }
    return dropped;
  }

  /**
   * Ends the connections of unwanted peers within five seconds, whatever they do. Discourages new requests at once,
   * calls `abort` after three seconds with the connections whose requests to abort, and at last destroys the sockets.
   * Returns how many connections there are.
   */
  endOf(
    isUnwanted: (peer: Connection["peer"]) => boolean,
    abort: (connections: ReadonlySet<Connection>) => void,
  ): number {
    const unwanted = [...this.#served].filter(([{ peer }]) => isUnwanted(peer));
    if (unwanted.length === 0) return 0;
    for (const [, http2] of unwanted) http2.drain();
    const end = setTimeout(() => {
      abort(new Set(unwanted.map(([connection]) => connection)));
      for (const [, http2] of unwanted) http2.close();
    }, UNWANTED_GRACE_MS);
    const cut = setTimeout(() => {
      for (const [{ socket }] of unwanted) socket.destroy();
    }, UNWANTED_LIMIT_MS);
    // These timers must not delay the agent's own end.
    end.unref();
    cut.unref();
    return unwanted.length;
  }

  stopAccepting(): void {
    this.#acceptor.stop();
    this.#acceptor.dropHalfOpen("the agent is shutting down");
  }

  /** Drains every connection. Resolves when all are closed. */
  async close(): Promise<void> {
    if (this.#ending === 0) return;
    const empty = new Promise<void>((resolve) => this.#whenEmpty.push(resolve));
    for (const http2 of this.#served.values()) http2.drain();
    await empty;
  }

  /** Closes every connection once its complete answers are written, within 5 s whatever its peer does. */
  closeNow(): void {
    for (const http2 of this.#served.values()) http2.close();
  }

  #onFailedHandshake(connection: AcceptedConnection, error: Error): void {
    const { name, log } = this.#options;
    const code = errnoOf(error);
    // The peer left, as load balancers' checks do: no warning.
    if (code === "ECONNRESET") {
      log.debug("connection_unused", { listener: name, peer: connection.peer.address });
      connection.destroy();
      return;
    }
    connection.failed(handshakeFailure(error));
    connection.closing();
    // OpenSSL sends its own reasons in an alert.
    if (code?.startsWith("ERR_SSL_") === true) this.#failedHandshakes.begin(connection.socket);
    else connection.destroy();
  }

  #onSecured(socket: TLSSocket): void {
    const connection = connectionOf(socket);
    if (connection === undefined) {
      socket.destroy();
      return;
    }
    this.#failedHandshakes.release(connection.socket);
    socket.allowHalfOpen = true;
    const certificate = peerCertificate(socket);
    if (socket.alpnProtocol !== "h2") connection.drop("does not speak HTTP/2 (ALPN)");
    else if (certificate === undefined) connection.drop("client certificate refused: it sent none");
    else if (!this.#options.isVouchedFor(certificate))
      connection.drop("client certificate refused: its authority has been replaced");
    else {
      connection.peer.certificate = certificate;
      this.#serve(socket, connection, socket);
    }
  }

  #serve(socket: Socket, connection: AcceptedConnection, tls: TLSSocket | undefined): void {
    const { router, interceptor, tokenField, log, limits, clock, nextConnectionId } = this.#options;
    connection.isHalfOpen = false;
    connection.id = nextConnectionId();
    const fields = { connection: connection.id, peer: connection.peer.address };
    // The first admitted call also secures the connection's place.
    const proven = (): void => {
      connection.isKept = true;
      http2.prove();
    };
    let admit: Interceptor = (metadata) => {
      const decision = interceptor(metadata);
      const decided = (refused: Awaited<typeof decision>): Awaited<typeof decision> => {
        if (refused === undefined) {
          proven();
          admit = interceptor;
        }
        return refused;
      };
      return decision instanceof Promise ? decision.then(decided) : decided(decision);
    };
    const http2 = new Http2Connection(
      socket,
      connection.socket,
      {
        ...limits,
        ...(tokenField !== undefined && { secret: tokenField }),
        firstRequestMs: limits.handshakeTimeoutMs,
        probation: { pace: this.#pace, bytes: limits.unprovenBytes, reads: limits.unprovenReads },
      },
      {
        request: (stream, request) => router.handle(stream, request, connection, admit),
        failed: (reason) => {
          // Served clients often close not quite by the protocol.
          if (connection.isKept) log.debug("connection_broken", { ...fields, reason });
          else connection.failed(reason);
        },
        peerDead: () => log.warn("peer_dead", fields),
        closing: () => {
          connection.closing();
        },
        gone: () => this.#onGone(connection, fields),
      },
      () => clock.monotonicMs(),
    );
    // Node cuts off a peer that breaks TLS; a connection that is merely lost has another errno.
    tls?.once("error", (error) => {
      const errno = errnoOf(error);
      if (!connection.isKept && errno?.startsWith("ERR_SSL_")) connection.failed(`TLS failed: ${errno}`);
    });
    this.#ending++;
    this.#served.set(connection, http2);
    log.debug("connection_opened", { ...fields, connections: this.sockets });
    http2.serve();
  }

  #onGone(connection: AcceptedConnection, fields: { readonly connection: number; readonly peer: string }): void {
    this.#served.delete(connection);
    this.#options.log.debug("connection_closed", { ...fields, connections: this.sockets });
    if (--this.#ending === 0) for (const resolve of this.#whenEmpty.splice(0)) resolve();
  }
}

/** Bounds of a listener. */
export interface ServerLimits {
  /** Connections at once, half-open ones included. */
  readonly connections: number;
  /** Time for the TLS handshake, and again for the first request's headers. */
  readonly handshakeTimeoutMs: number;
  readonly pings: PingLimits;
  /** What a connection may send before its first call that is let in, and in how many reads. */
  readonly unprovenBytes: number;
  readonly unprovenReads: number;
  /** Bounds of HTTP/2 that differ from the usual ones. */
  readonly http2?: Partial<Http2Limits>;
}

/** The default bounds. */
export const DEFAULT_SERVER_LIMITS: ServerLimits = {
  connections: CONNECTION_LIMIT,
  handshakeTimeoutMs: HANDSHAKE_TIMEOUT_MS,
  pings: { intervalMs: 30_000, timeoutMs: 10_000 },
  unprovenBytes: 256 * 1024,
  unprovenReads: 1_000,
};
