import type {
  Http2SecureServer,
  Http2Server,
  IncomingHttpHeaders,
  ServerHttp2Session,
  ServerHttp2Stream,
  ServerOptions,
} from "node:http2";
import type { Server, Socket } from "node:net";
import { createServer } from "node:net";
import type { TLSSocket } from "node:tls";
import type { Clock, Log } from "../domain/index.ts";
import type { Interceptor, PeerCertificate, Router, Session } from "../rpc/index.ts";
import { type Connection, connectionOf, Connections } from "./connections.ts";
import type { ServerLimits } from "./limits.ts";
import { errnoOf } from "./listening.ts";
import { peerCertificate } from "./peer.ts";
import { RefusalLog } from "./refusals.ts";
import { Sessions } from "./sessions.ts";

/** Size of a request's headers. The token is the largest of them, at most 4 KiB. */
const HEADER_LIMIT_BYTES = 16 * 1024;
const HEADER_LIMIT_FIELDS = 64;
/** Malformed frames that a session survives. */
const INVALID_FRAME_LIMIT = 100;
/** Data queued in a session above which it takes no new calls. Every call's own queue is bounded far below. */
const SESSION_MEMORY_LIMIT_MB = 128;

/**
 * Says why a client whose certificate is of the right authority is refused all the same; undefined: it is not.
 * `now` in milliseconds since 1970.
 */
export type VerifyPeer = (certificate: PeerCertificate, nowMs: number) => string | undefined;

/** What a listener needs beside its HTTP/2 server. */
export interface ListenerOptions {
  /** For the log: "tcp" or "unix". */
  readonly name: string;
  readonly router: Router;
  readonly interceptor: Interceptor;
  readonly verifyPeer: VerifyPeer | undefined;
  readonly log: Log;
  readonly clock: Clock;
  readonly limits: ServerLimits;
  /** Numbers the sessions of all listeners. */
  readonly nextSessionId: () => number;
}

/** Options of every HTTP/2 server of the management side. nghttp2's own limits on PING, SETTINGS and reset floods stay. */
export function http2Options(limits: ServerLimits): ServerOptions {
  return {
    settings: {
      initialWindowSize: limits.streamWindowBytes,
      maxConcurrentStreams: limits.streamsPerConnection,
      maxHeaderListSize: HEADER_LIMIT_BYTES,
    },
    maxHeaderListPairs: HEADER_LIMIT_FIELDS,
    maxSessionInvalidFrames: INVALID_FRAME_LIMIT,
    maxSessionMemory: SESSION_MEMORY_LIMIT_MB,
  };
}

/** Accepts connections, bounds and watches them, and hands their calls to the router. */
export class Http2Listener {
  /** Listens wherever the owner says. */
  readonly acceptor: Server;
  readonly sessions: Sessions;
  readonly #http2: Http2Server | Http2SecureServer;
  readonly #options: ListenerOptions;
  readonly #connections: Connections;
  /** Of sessions without a call that was let in. */
  readonly #unproven = new WeakMap<Session, Connection>();

  constructor(http2: Http2Server | Http2SecureServer, options: ListenerOptions) {
    const { log, clock, limits, name } = options;
    this.#http2 = http2;
    this.#options = options;
    this.#connections = new Connections(limits.connections, new RefusalLog(log, clock, name));
    this.sessions = new Sessions(log, clock, limits, options.nextSessionId);
    this.acceptor = createServer({ noDelay: true }, (socket) => this.#accept(socket));
    // A failed accept(2) (no descriptor left) is not the end of the listener.
    this.acceptor.on("error", (error) => log.warn("accept_failed", { listener: name, errno: errnoOf(error) }));
    http2.on("session", (session: ServerHttp2Session) => this.#openSession(session));
    http2.on("stream", (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => {
      const session = this.sessions.of(stream.session as ServerHttp2Session | undefined);
      if (session === undefined) stream.destroy();
      else options.router.handle(stream, headers, session, this.#interceptorOf(session));
    });
    http2.on("unknownProtocol", (socket: TLSSocket) => connectionOf(socket)?.drop("does not speak HTTP/2 (ALPN)"));
    http2.on("tlsClientError", (error: Error, socket: TLSSocket) => {
      const reason = socket.authorizationError ?? errnoOf(error) ?? error.message;
      connectionOf(socket)?.drop(`TLS handshake failed: ${String(reason)}`);
    });
  }

  /** Ends half-open handshakes and every session but one. Returns how many sessions were ended. */
  dropOthers(keep: Session | undefined): number {
    this.#connections.dropHalfOpen("half-open while the connections were renewed");
    return this.sessions.dropOthers(keep);
  }

  /** Accepts no more connections. */
  stopAccepting(): void {
    this.acceptor.close();
    this.#connections.dropHalfOpen("the agent is shutting down");
  }

  #accept(socket: Socket): void {
    if (this.#connections.admit(socket) !== undefined) this.#http2.emit("connection", socket);
  }

  /** Until a call has been let in, the interceptor's decision is also about the connection. */
  #interceptorOf(session: Session): Interceptor {
    const { interceptor } = this.#options;
    const connection = this.#unproven.get(session);
    if (connection === undefined) return interceptor;
    return async (metadata) => {
      const refused = await interceptor(metadata);
      if (refused === undefined) {
        connection.keep();
        this.#unproven.delete(session);
      }
      return refused;
    };
  }

  #openSession(http2: ServerHttp2Session): void {
    const connection = connectionOf(http2.socket);
    if (connection === undefined) {
      http2.destroy();
      return;
    }
    const certificate = peerCertificate(http2.socket);
    const { verifyPeer, clock } = this.#options;
    const problem =
      certificate === undefined ? undefined : verifyPeer?.(certificate, Number(clock.wallNs() / 1_000_000n));
    if (problem !== undefined) {
      connection.drop(problem);
      return;
    }
    connection.established();
    const session = this.sessions.add(http2, { address: connection.peer, certificate }, connection);
    this.#unproven.set(session, connection);
  }
}
