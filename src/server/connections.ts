import type { Server, Socket } from "node:net";
import type { Clock, Log, WatchArrivals } from "../domain/index.ts";

/** An accepted connection, from accept(2) to its end. */
export interface Connection {
  /** `address:port`, or "unix". */
  readonly peer: string;
  /** As accepted. */
  readonly socket: Socket;
  /** Closes it at once and logs why: as refused, or as failed if it was established. Later calls do nothing. */
  drop(reason: string): void;
  /** Logs why it is refused or has failed; the caller closes it. */
  failed(reason: string): void;
  /** Records that the handshake is complete. */
  established(): void;
  /** From now on no new connection takes its place. */
  keep(): void;
  /** Frees its place, as its end has begun, although its socket is still open. */
  closing(): void;
}

const CONNECTION: unique symbol = Symbol("connection");

/** A socket with its connection. `_parent` is Node's only way from a TLS socket to the accepted socket below it. */
type MarkedSocket = object & { [CONNECTION]?: Connection; readonly _parent?: MarkedSocket };

/** The connection of an accepted socket, or of the TLS socket over it. */
export function connectionOf(socket: MarkedSocket): Connection | undefined {
  return socket[CONNECTION] ?? socket._parent?.[CONNECTION];
}

/**
 * The connections of a listener, bounded in number. At the bound a new one replaces the oldest half-open handshake, else
 * the oldest connection that has made no admitted call: somebody who can connect but not call cannot lock the node agent
 * out. If all are kept, the new one is refused.
 */
export class Connections {
  readonly #limit: number;
  readonly #refusals: RefusalLog;
  readonly #open = new Set<OpenConnection>();
  /** Connections whose end has begun. Each has its own deadline. */
  readonly #closing = new Set<OpenConnection>();

  constructor(limit: number, refusals: RefusalLog) {
    this.#limit = limit;
    this.#refusals = refusals;
  }

  /** Open sockets, also of connections whose end has begun. */
  get sockets(): number {
    return this.#open.size + this.#closing.size;
  }

  /** Admits a connection; undefined: it was refused. */
  admit(socket: Socket & MarkedSocket): Connection | undefined {
    const connection = new OpenConnection(socket, this.#refusals, () => {
      if (this.#open.delete(connection)) this.#closing.add(connection);
    });
    if (this.#open.size >= this.#limit) {
      const oldest = this.#first((other) => other.halfOpen) ?? this.#first((other) => !other.kept);
      if (oldest === undefined) {
        connection.drop(`connection limit (${this.#limit}) reached`);
        return undefined;
      }
      const lack = oldest.halfOpen ? "handshake not complete" : "no call was let in";
      oldest.drop(`${lack}, and its place was needed`);
      oldest.closing();
    }
    this.#open.add(connection);
    socket[CONNECTION] = connection;
    socket.once("close", () => {
      this.#open.delete(connection);
      this.#closing.delete(connection);
    });
    return connection;
  }

  /** Closes every connection whose handshake is not complete. Returns their number. */
  dropHalfOpen(reason: string): number {
    const halfOpen = [...this.#open].filter((connection) => connection.halfOpen);
    for (const connection of halfOpen) connection.drop(reason);
    return halfOpen.length;
  }

  #first(fits: (connection: OpenConnection) => boolean): OpenConnection | undefined {
    for (const connection of this.#open) if (fits(connection)) return connection;
    return undefined;
  }
}

class OpenConnection implements Connection {
  readonly peer: string;
  readonly socket: Socket;
  readonly #refusals: RefusalLog;
  readonly closing: () => void;
  #toldWhy = false;
  halfOpen = true;
  kept = false;

  constructor(socket: Socket, refusals: RefusalLog, closing: () => void) {
    this.socket = socket;
    this.#refusals = refusals;
    this.closing = closing;
    this.peer = peerAddress(socket);
    // "close" follows an error; the code that knows the reason reports it.
    socket.on("error", () => {});
  }

  drop(reason: string): void {
    this.failed(reason);
    this.socket.destroy();
  }

  failed(reason: string): void {
    if (this.#toldWhy) return;
    this.#toldWhy = true;
    this.#refusals.write(this.halfOpen ? "connection_refused" : "connection_failed", this.peer, reason);
  }

  established(): void {
    this.halfOpen = false;
  }

  keep(): void {
    this.kept = true;
  }
}

function peerAddress(socket: Socket): string {
  const { remoteAddress, remotePort } = socket;
  if (remoteAddress === undefined || remotePort === undefined) return "unix";
  const address = remoteAddress.replace(/^::ffff:(?=\d+\.)/, "");
  return address.includes(":") ? `[${address}]:${remotePort}` : `${address}:${remotePort}`;
}

/** Log lines at once, and a second in the long run: the workload can cause refusals as fast as it likes. */
const BURST = 20;
const PER_SECOND = 2;

/** Logs refused and failed connections, at a bounded rate. */
export class RefusalLog {
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #listener: string;
  #credit = BURST;
  #creditedAtMs: number;
  #suppressed = 0;

  constructor(log: Log, clock: Clock, listener: string) {
    this.#log = log;
    this.#clock = clock;
    this.#listener = listener;
    this.#creditedAtMs = clock.monotonicMs();
  }

  /**
   * `reason` says what was wrong, never a secret. `suppressed` in a line counts the lines that were left out before it.
   */
  write(event: "connection_refused" | "connection_failed", peer: string, reason: string): void {
    const nowMs = this.#clock.monotonicMs();
    this.#credit = Math.min(BURST, this.#credit + ((nowMs - this.#creditedAtMs) / 1_000) * PER_SECOND);
    this.#creditedAtMs = nowMs;
    if (this.#credit < 1) {
      this.#suppressed++;
      return;
    }
    this.#credit--;
    const suppressed = this.#suppressed === 0 ? undefined : this.#suppressed;
    this.#suppressed = 0;
    this.#log.warn(event, { listener: this.#listener, peer, reason, suppressed });
  }
}

/** Least time between two lines: one for each connection would flood the log. */
const SILENCE_MS = 10_000;

/** `_handle` is Node's only way to a server's descriptor. Without it nothing is logged. */
type Listening = Server & { readonly _handle?: { readonly fd?: number } | null };

/** What `logLostConnections` needs. */
export interface LostConnections {
  readonly watch: WatchArrivals | undefined;
  readonly listener: string;
  readonly log: Log;
  readonly clock: Clock;
}

/**
 * Logs `accept_failed` when connections arrive while no descriptor is left: libuv then accepts them with a reserved one
 * and closes them at once, without an event. Call it once the server listens. The returned function ends the watch; until
 * then the socket stays open.
 */
export function logLostConnections(server: Server, { watch, listener, log, clock }: LostConnections): () => void {
  const fd = (server as Listening)._handle?.fd;
  if (watch === undefined || fd === undefined || fd < 0) return () => {};
  let silentUntilMs = Number.NEGATIVE_INFINITY;
  return watch(fd, (errno) => {
    const nowMs = clock.monotonicMs();
    if (nowMs < silentUntilMs) return;
    silentUntilMs = nowMs + SILENCE_MS;
    log.warn("accept_failed", { listener, errno });
  });
}
