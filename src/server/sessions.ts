import { constants, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import type { Clock, Log } from "../domain/index.ts";
import type { PeerInfo, Session } from "../rpc/index.ts";
import type { Connection } from "./connections.ts";
import { keepAlive } from "./keepalive.ts";
import type { ServerLimits } from "./limits.ts";
import { errnoOf } from "./listening.ts";
import { StreamWindows } from "./stream-windows.ts";

/** Highest stream number: a GOAWAY with it announces the end without refusing what is on its way (RFC 9113, 6.8). */
const LAST_STREAM_ID = 2 ** 31 - 1;

interface OpenSession {
  readonly info: Session;
  readonly http2: ServerHttp2Session;
  /** Calls that have not ended. */
  calls: number;
  /** There has been a call. */
  served: boolean;
  /** The end has been announced. */
  ending: boolean;
}

/** The HTTP/2 sessions of a listener: watched, listed, ended. */
export class Sessions {
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #limits: ServerLimits;
  readonly #open = new Map<ServerHttp2Session, OpenSession>();
  readonly #nextId: () => number;
  readonly #idle: (() => void)[] = [];

  constructor(log: Log, clock: Clock, limits: ServerLimits, nextId: () => number) {
    this.#log = log;
    this.#clock = clock;
    this.#limits = limits;
    this.#nextId = nextId;
  }

  /** Takes in a session whose handshake is complete. */
  add(http2: ServerHttp2Session, peer: PeerInfo, connection: Connection): Session {
    const openedAt = { wallNs: this.#clock.wallNs(), monotonicMs: this.#clock.monotonicMs() };
    const windows = new StreamWindows(http2, this.#limits);
    const onLargeRequest = (stream: ServerHttp2Stream): void => windows.add(stream);
    const info: Session = { id: this.#nextId(), openedAt, peer, onLargeRequest };
    const session: OpenSession = { info, http2, calls: 0, served: false, ending: false };
    this.#open.set(http2, session);
    http2.on("stream", (stream) => {
      session.calls++;
      session.served = true;
      stream.once("close", () => {
        session.calls--;
        if (session.ending && session.calls === 0) http2.close();
      });
    });
    this.#log.debug("session_opened", { session: info.id, peer: peer.address });
    http2.on("error", (error: Error) => {
      const reason = errnoOf(error) ?? error.message;
      // grpc-go says goodbye with a GOAWAY that nghttp2 takes for an error.
      if (session.served) this.#log.debug("session_failed", { session: info.id, peer: peer.address, reason });
      else connection.drop(`protocol error: ${reason}`);
    });
    http2.once("close", () => {
      this.#open.delete(http2);
      this.#log.debug("session_closed", { session: info.id, peer: peer.address });
      if (this.#open.size === 0) for (const resolve of this.#idle.splice(0)) resolve();
    });
    http2.setLocalWindowSize(this.#limits.connectionWindowBytes);
    this.#awaitFirstRequest(http2, connection);
    keepAlive(http2, this.#limits.pingIntervalMs, this.#limits.pingTimeoutMs, () => {
      this.#log.warn("peer_dead", { session: info.id, peer: peer.address });
      http2.destroy();
    });
    return info;
  }

  /** The session that a stream belongs to. */
  of(http2: ServerHttp2Session | undefined): Session | undefined {
    return http2 === undefined ? undefined : this.#open.get(http2)?.info;
  }

  list(): readonly Session[] {
    return Array.from(this.#open.values(), (session) => session.info);
  }

  /** Destroys every session but one. That one finishes its calls and takes no new ones. Returns how many were destroyed. */
  dropOthers(keep: Session | undefined): number {
    let dropped = 0;
    for (const { info, http2 } of this.#open.values()) {
      if (info === keep) {
        http2.close();
        continue;
      }
      http2.destroy();
      dropped++;
    }
    return dropped;
  }

  /** Announces the end to every peer, and closes each session once its calls have ended. Resolves when none is left. */
  async close(): Promise<void> {
    if (this.#open.size === 0) return;
    const idle = new Promise<void>((resolve) => this.#idle.push(resolve));
    for (const session of this.#open.values()) announceEnd(session);
    await idle;
  }

  /** Ends every session at once. */
  destroy(): void {
    for (const { http2 } of this.#open.values()) http2.destroy();
  }

  #awaitFirstRequest(http2: ServerHttp2Session, connection: Connection): void {
    const { handshakeTimeoutMs } = this.#limits;
    const overdue = setTimeout(
      () => connection.drop(`no request within ${handshakeTimeoutMs} ms of the handshake`),
      handshakeTimeoutMs,
    );
    overdue.unref();
    http2.once("stream", () => clearTimeout(overdue));
    http2.once("close", () => clearTimeout(overdue));
  }
}

/**
 * Calls that were on their way are still answered (with UNAVAILABLE). The answer to a second PING says that none is left:
 * that to the first may have overtaken calls within the client. A session without calls is closed at once, because
 * nghttp2 reads no more from it once a GOAWAY is out, not even that answer.
 */
function announceEnd(session: OpenSession): void {
  const { http2 } = session;
  if (http2.closed || http2.destroyed) return;
  if (session.calls === 0) {
    http2.close();
    return;
  }
  session.ending = true;
  http2.goaway(constants.NGHTTP2_NO_ERROR, LAST_STREAM_ID);
  http2.ping(() => {
    if (!http2.destroyed) http2.ping(() => http2.close());
  });
}
