import type { Server, Socket } from "node:net";
import type { Clock, Log, WatchArrivals } from "../domain/index.ts";

/** An accepted connection, from accept(2) to its end. */
export interface Connection {
  /** `address:port`, or "unix". */
  readonly peer: string;
  /** As accepted. */
  readonly socket: Socket;
  /** Closes it at once and logs why: as refused, or as failed once it was established. Later calls do nothing. */
  drop(reason: string): void;
  /** Logs why it is refused or has failed, and leaves its end to the caller. */
  failed(reason: string): void;
  /** The handshake is over. */
  established(): void;
  /** Its place is given to no newcomer from now on. */
  keep(): void;
  /** Its end has begun: it holds no place any more, though its socket is still open. */
  closing(): void;
}

const CONNECTION: unique symbol = Symbol("connection");

/** A socket that carries its connection. `_parent` is Node's only way from a TLS socket to the accepted one below it. */
type MarkedSocket = object & { [CONNECTION]?: Connection; readonly _parent?: MarkedSocket };

/** The connection of an accepted socket, or of the TLS socket over it. */
export function connectionOf(socket: MarkedSocket): Connection | undefined {
  return socket[CONNECTION] ?? socket._parent?.[CONNECTION];
}

/**
 * The connections of a listener, bounded in number. At the bound a newcomer takes the place of the oldest half-open
 * handshake, else of the oldest connection that has not earned its place, so that whoever can open connections but
 * make no call cannot keep the node agent out; where all are kept the newcomer is refused.
 */
export class Connections {
  readonly #limit: number;
  readonly #refusals: RefusalLog;
  readonly #open = new Set<OpenConnection>();
  /** Those whose end has begun. Each has a deadline of its own. */
  readonly #closing = new Set<OpenConnection>();

  constructor(limit: number, refusals: RefusalLog) {
    this.#limit = limit;
    this.#refusals = refusals;
  }

  /** Open sockets, those whose end has begun included. */
  get sockets(): number {
    return this.#open.size + this.#closing.size;
  }

  /** Takes a connection in; undefined when it had to be refused. */
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
    // An error is followed by "close"; why a connection broke is reported where it is known.
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

/** Lines at once, and per second in the long run: the workload can make refused connections as fast as it likes. */
const BURST = 20;
const PER_SECOND = 2;

/** Logs connections that were refused or failed, at a bounded rate. */
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

  /** `reason` names what was wrong, never a secret. `suppressed` in a line counts those left out before it. */
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

/** A line for each connection would be a flood of them. */
const SILENCE_MS = 10_000;

/** `_handle` is Node's only way to the descriptor that a server listens on; without it there are no lines. */
type Listening = Server & { readonly _handle?: { readonly fd?: number } | null };

/** Who tells of it. */
export interface LostConnections {
  readonly watch: WatchArrivals | undefined;
  readonly listener: string;
  readonly log: Log;
  readonly clock: Clock;
}

/**
 * Logs `accept_failed` when connections come while no descriptor is left: libuv accepts them then with one that it keeps for
 * that, closes them at once, and tells nobody. To be called once the server listens; returns what ends the watch, without
 * which the socket would stay open.
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
