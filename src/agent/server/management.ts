import { X509Certificate } from "node:crypto";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import {
  AgentError,
  type Clock,
  CONNECTION_LIMIT,
  HANDSHAKE_TIMEOUT_MS,
  type Log,
  type TlsMaterial,
  type UnacknowledgedMs,
  type VsockPeer,
  type WatchArrivals,
} from "../domain/index.ts";
import { errnoOf } from "../../shared/errors.ts";
import { Http2Connection, type Http2Limits, ThrottleQueue, type SecretField } from "../http2/index.ts";
import {
  type AcceptedConnection,
  Acceptor,
  type Connection,
  type PeerCertificate,
  type TcpAddress,
} from "../listening/index.ts";
import type { Interceptor, Router } from "../rpc/index.ts";
import { Handshakes } from "./handshakes.ts";
import { DEFAULT_LIVENESS, isLostPeer, type LivenessLimits, PeerLiveness } from "./peer-liveness.ts";
import { isIssuedBy } from "./tls.ts";

/** What the management server needs from the rest of the agent, for all of its listeners. */
export interface ManagementServerOptions {
  readonly router: Router;
  /** Admits or refuses every call (see tokenAuthenticator). */
  readonly authenticate: Interceptor;
  /** The field of requests that contains the token (see tokenField). If undefined, no token is required. */
  readonly tokenField?: SecretField;
  readonly onConnection?: () => void;
  readonly log: Log;
  readonly clock: Clock;
  /**
   * Detects connections that the agent cannot accept because it has no free descriptor. If undefined, such lost
   * connections are not logged.
   */
  readonly watchArrivals?: WatchArrivals;
  /**
   * Returns for how long a TCP peer has not acknowledged sent data. During this time, the kernel sends no keepalive
   * probes, so only this function detects a lost peer. If undefined, lost peers are detected only by those probes.
   */
  readonly unacknowledgedMs?: UnacknowledgedMs;
  readonly limits?: Partial<ServerLimits>;
}

/** Limits of the management server, for each of its listeners. */
export interface ServerLimits {
  /** Largest number of connections at once, including those whose handshake is not complete. */
  readonly connections: number;
  /** Time limit for the TLS handshake. The headers of the first request then have the same limit. */
  readonly handshakeTimeoutMs: number;
  /** Interval of PINGs. A client that does not answer its PING counts as silent. */
  readonly pingIntervalMs: number;
  /** A connection whose client is silent for this long may be replaced by the connection of another client. */
  readonly evictAfterSilentMs: number;
  readonly liveness: LivenessLimits;
  /** Number of bytes that a connection may send before its first admitted call. */
  readonly unauthenticatedBytes: number;
  /** Number of socket reads that a connection may cause before its first admitted call. Each TLS record is a read. */
  readonly unauthenticatedReads: number;
  readonly http2?: Partial<Http2Limits>;
}

const DEFAULT_SERVER_LIMITS: ServerLimits = {
  connections: CONNECTION_LIMIT,
  handshakeTimeoutMs: HANDSHAKE_TIMEOUT_MS,
  pingIntervalMs: 30_000,
  evictAfterSilentMs: 60_000,
  liveness: DEFAULT_LIVENESS,
  unauthenticatedBytes: 256 * 1024,
  unauthenticatedReads: 1_000,
};

/** Number of connections that a listener accepts above its limit: the surplus connections (see Acceptor). */
const SURPLUS_CONNECTIONS = 16;

/** How long calls may still run after the CA of their client's certificate was replaced. */
const REPLACED_AUTHORITY_GRACE_MS = 3_000;
/** How long a connection may stay open after the CA of its client's certificate was replaced. */
const REPLACED_AUTHORITY_LIMIT_MS = 4_500;

/** Serves an established connection. `socket` is the accepted socket, or the TLS socket over it. */
type Serve = (connection: AcceptedConnection, socket: Socket) => void;

/** Returns the function that a listener calls with each accepted connection. */
type ConnectionStarter = (serve: Serve) => (connection: AcceptedConnection) => void;

/**
 * Largest write to a vsock socket, in bytes. Larger writes than 32 KiB are not safe: kernels since 6.17, and patched
 * stable kernels, pass them to the device in several buffers. These devices use only the first buffer, or mix up the
 * buffers:
 *
 * - vhost-device-vsock 0.3.0 (virtio-vsock's packet.rs)
 * - Firecracker before 1.14 (#5485)
 */
const VSOCK_WRITE_BYTES = 16 * 1024;

const WITHOUT_TLS: ConnectionStarter = (serve) => (connection) => serve(connection, connection.socket);

/**
 * Serves GuestAgent to the node agent over TCP (with mutual TLS), over vsock, and over a unix socket. A connection gets
 * its `Http2Connection` only after its handshake. Before that, `AcceptedConnection.drop` ends it.
 */
export class ManagementServer {
  readonly #options: ManagementServerOptions;
  readonly #limits: ServerLimits;
  readonly #acceptors: Acceptor[] = [];
  /** Established connections, until their sockets are closed. */
  readonly #served = new Map<AcceptedConnection, Http2Connection>();
  readonly #noneServed = Promise.withResolvers<void>();
  /** The handshakes, one object for each listener with TLS. */
  readonly #handshakes: Handshakes[] = [];
  /**
   * The listeners' credentials, and when their certificate expires. The date is stored, because most restores pass the
   * same credentials again, which are then not parsed again.
   */
  #credentials: TlsMaterial | undefined;
  #notAfter = new Date(0);
  #connections = 0;
  #shutdown: Promise<void> | undefined;

  constructor(options: ManagementServerOptions) {
    this.#options = options;
    this.#limits = { ...DEFAULT_SERVER_LIMITS, ...options.limits };
  }

  /** Listens on a TCP port (0: any free port) with mutual TLS. Returns the port. Throws AgentError on failure. */
  async listenTcp(place: TcpAddress, tls: TlsMaterial): Promise<number> {
    const bound = await this.#acceptor("tcp", this.#overTls(tls, "tcp")).listenTcp(place);
    this.#noteCredentials(tls);
    return bound;
  }

  /**
   * Serves the host over a listening vsock socket, with mutual TLS if there are credentials. Throws AgentError on
   * failure.
   */
  async listenVsock(fd: number, peer: VsockPeer, tls: TlsMaterial | undefined): Promise<void> {
    await this.#acceptor("vsock", tls === undefined ? WITHOUT_TLS : this.#overTls(tls, "vsock")).listenVsock(fd, peer);
    if (tls !== undefined) this.#noteCredentials(tls);
  }

  #overTls(tls: TlsMaterial, listener: "tcp" | "vsock"): ConnectionStarter {
    return (serve) => {
      const options = { timeoutMs: this.#limits.handshakeTimeoutMs, log: this.#options.log, listener };
      const handshakes = new Handshakes(tls, options, serve);
      this.#handshakes.push(handshakes);
      return (connection) => handshakes.begin(connection);
    };
  }

  /** Listens on a unix socket, without TLS. Throws AgentError on failure. */
  async listenUnix(path: string): Promise<void> {
    const acceptor = this.#acceptor("unix", WITHOUT_TLS);
    await acceptor.listenUnix(path, 0o600);
  }

  /**
   * Serves a stream in memory, for a warm-up. Nothing outside the process can reach the stream.
   *
   * @param tls if undefined, the stream carries HTTP/2 directly. Otherwise `server` is the TLS socket over the stream,
   *   whose handshake must be complete, and `certificate` is used in place of a client certificate.
   */
  serveInMemory(stream: Duplex, tls?: { server: TLSSocket; certificate: PeerCertificate | undefined }): void {
    const acceptor = this.#acceptor("memory", (serve) => (connection) => {
      connection.peer.certificate = tls?.certificate;
      serve(connection, tls?.server ?? connection.socket);
    });
    acceptor.server.emit("connection", stream);
  }

  /**
   * Uses these credentials for new connections. An open connection stays, unless the CA of its client's certificate was
   * replaced. Then it accepts no new calls and ends within five seconds.
   */
  setCredentials(tls: TlsMaterial): void {
    const isKnown = tls === this.#credentials;
    this.#noteCredentials(tls);
    if (isKnown) return;
    for (const handshakes of this.#handshakes) handshakes.setCredentials(tls);
    const unwanted = [...this.#served].filter(
      ([{ peer }]) => peer.certificate !== undefined && !isIssuedBy(peer.certificate.chain, tls),
    );
    if (unwanted.length === 0) return;
    for (const [, http2] of unwanted) http2.drain();
    const end = setTimeout(() => {
      this.#options.router.abortCalls(authorityReplaced(), new Set(unwanted.map(([connection]) => connection)));
      for (const [, http2] of unwanted) http2.close();
    }, REPLACED_AUTHORITY_GRACE_MS);
    const cut = setTimeout(() => {
      for (const [{ socket }] of unwanted) socket.destroy();
    }, REPLACED_AUTHORITY_LIMIT_MS);
    // These timers must not delay the end of the agent.
    end.unref();
    cut.unref();
    this.#options.log.info("replaced_authority_disconnected", { connections: unwanted.length });
  }

  /**
   * Logs an expired server certificate, but still uses it: clients decide whether they accept it, and the guest's clock
   * may be wrong.
   */
  #noteCredentials(tls: TlsMaterial): void {
    const { log, clock } = this.#options;
    if (tls !== this.#credentials) this.#notAfter = new X509Certificate(tls.cert).validToDate;
    this.#credentials = tls;
    if (BigInt(this.#notAfter.getTime()) * 1_000_000n > clock.wallNs()) return;
    const consequence =
      "clients that check the certificate's dates reject the agent; replace SVC_TLS_CERT_FILE, or set the guest's clock";
    log.warn("server_certificate_expired", { not_after: this.#notAfter.toISOString(), consequence });
  }

  /** Number of open sockets of all listeners, in any state. */
  get sockets(): number {
    return this.#acceptors.reduce((sum, acceptor) => sum + acceptor.sockets, 0);
  }

  /**
   * Ends all connections and handshakes from before the snapshot, because every clone has their keys. Call it in a
   * restored guest. The connection `keep` completes its calls, but it accepts no new calls. Returns how many
   * connections it ended.
   */
  dropOtherConnections(keep: Connection | undefined): number {
    for (const acceptor of this.#acceptors)
      acceptor.dropHalfOpen("the handshake was not complete when the agent closed all connections after a restore");
    let dropped = 0;
    for (const [connection, http2] of this.#served) {
      if (connection === keep) {
        http2.drain();
        continue;
      }
      http2.closeAfterRestore();
      dropped++;
    }
    return dropped;
  }

  /**
   * Refuses new connections and calls, and aborts running calls after `graceMs`. Refused and aborted calls get
   * UNAVAILABLE. Resolves when no connection is left, at most 5 s after `graceMs`.
   */
  shutdown(graceMs: number): Promise<void> {
    this.#shutdown ??= this.#end(graceMs);
    return this.#shutdown;
  }

  async #end(graceMs: number): Promise<void> {
    for (const acceptor of this.#acceptors) {
      acceptor.stop();
      acceptor.dropHalfOpen("the agent is shutting down");
    }
    if (this.#served.size === 0) return;
    for (const http2 of this.#served.values()) http2.drain();
    const abort = setTimeout(() => {
      this.#options.router.abortCalls(shuttingDown());
      for (const http2 of this.#served.values()) http2.close();
    }, graceMs);
    await this.#noneServed.promise;
    clearTimeout(abort);
  }

  #acceptor(name: string, starter: ConnectionStarter): Acceptor {
    const { onConnection } = this.#options;
    const pace = new ThrottleQueue();
    const acceptor: Acceptor = new Acceptor(
      {
        ...this.#options,
        name,
        limit: this.#limits.connections,
        evictAfterSilentMs: this.#limits.evictAfterSilentMs,
        surplus: SURPLUS_CONNECTIONS,
      },
      // The write side stays open when the peer closes its own: Http2Connection decides when a connection ends.
      { noDelay: true, allowHalfOpen: true },
      starter((connection, socket) => this.#serve(connection, socket, pace, acceptor)),
    );
    if (onConnection !== undefined) acceptor.server.on("connection", onConnection);
    this.#acceptors.push(acceptor);
    return acceptor;
  }

  #serve(connection: AcceptedConnection, socket: Socket, pace: ThrottleQueue, acceptor: Acceptor): void {
    const { router, authenticate, tokenField, log, clock, unacknowledgedMs } = this.#options;
    const limits = this.#limits;
    connection.isHalfOpen = false;
    connection.id = ++this.#connections;
    const fields = { connection: connection.id, peer: connection.peer.address };
    const interceptor: Interceptor = (metadata) =>
      this.#shutdown === undefined ? authenticate(metadata) : shuttingDown();
    let admit: Interceptor = (metadata) => {
      const decision = interceptor(metadata);
      const decided = (refused: Awaited<typeof decision>): Awaited<typeof decision> => {
        if (refused === undefined) {
          if (!acceptor.hasPlace(connection)) return tooManyConnections(limits.connections);
          connection.isKept = true;
          http2.markAuthenticated();
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
        writeBytes: connection.isVsock ? VSOCK_WRITE_BYTES : undefined,
        probation: { queue: pace, bytes: limits.unauthenticatedBytes, reads: limits.unauthenticatedReads },
      },
      {
        request: (stream, request) => router.handle(stream, request, connection, admit),
        failed: (reason) => {
          // Logged only at the level debug: many good clients do not follow the protocol exactly when they disconnect.
          if (connection.isKept) log.debug("connection_broken", { ...fields, reason });
          else connection.failed(reason);
        },
        sent: () => liveness?.sent(),
        closing: () => connection.closing(),
        gone: () => {
          this.#served.delete(connection);
          log.debug("connection_closed", { ...fields, connections: acceptor.sockets });
          if (this.#shutdown !== undefined && this.#served.size === 0) this.#noneServed.resolve();
        },
      },
      () => clock.monotonicMs(),
    );
    connection.silentMs = () => http2.silentMs;
    const liveness =
      !connection.socket.remoteAddress || unacknowledgedMs === undefined
        ? undefined
        : new PeerLiveness(
            connection.socket,
            unacknowledgedMs,
            limits.liveness,
            () => clock.monotonicMs(),
            (silentMs) => {
              log.warn("peer_lost", { ...fields, silent_ms: silentMs });
              http2.abandon();
            },
          );
    socket.once("error", (error) => {
      const errno = errnoOf(error);
      if (isLostPeer(errno)) log.warn("peer_lost", { ...fields, errno });
      // Node itself closes a connection whose peer violates TLS, so the agent only logs it.
      else if (!connection.isKept && errno?.startsWith("ERR_SSL_")) connection.failed(`TLS failed: ${errno}`);
    });
    this.#served.set(connection, http2);
    log.debug("connection_opened", { ...fields, connections: acceptor.sockets });
    http2.serve();
  }
}

function authorityReplaced(): AgentError {
  const message = "the CA of the client certificate was replaced; reconnect with a certificate of the new CA";
  return new AgentError("UNAVAILABLE", "AUTHORITY_REPLACED", message);
}

function tooManyConnections(limit: number): AgentError {
  const message = `the limit of ${limit} connections is reached; close one, or share connections between calls`;
  return new AgentError("RESOURCE_EXHAUSTED", "TOO_MANY_CONNECTIONS", message, { limit: String(limit) });
}

function shuttingDown(): AgentError {
  return new AgentError("UNAVAILABLE", "SHUTTING_DOWN", "the agent is shutting down");
}
