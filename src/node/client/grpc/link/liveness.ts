import type { ClientHttp2Session } from "node:http2";
import type { Socket } from "node:net";
import { type Client, connectivityState } from "@grpc/grpc-js";
import type { Cause } from "../grpc-texts.ts";
import { abandonConnecting, connectionsOf } from "../internals/grpc-js.ts";
import { readAgain } from "../internals/read-again.ts";
import { publish } from "../tracing.ts";

/** Interval of the checks of connections while there are calls. */
const CHECK_INTERVAL_MS = 1_000;
/** Number of checks without received bytes after which a ping is sent. */
const PING_CHECKS = 5;
const PINGS = 3;
/** Longest delay that Node's timers accept. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

const EVENTS: ReadonlyMap<connectivityState, "connecting" | "connected" | "failed"> = new Map([
  [connectivityState.CONNECTING, "connecting"],
  [connectivityState.READY, "connected"],
  [connectivityState.TRANSIENT_FAILURE, "failed"],
]);

/**
 * Whether this version of Node has a bug that Node 26 fixed: if the peer reset a connection during a write, node:http2
 * could stop reading the connection, and then never noticed its end.
 */
const STOPS_READING = Number.parseInt(process.versions.node, 10) < 26;

/**
 * Detects dead connections while they have calls in progress. A connection is dead if it has received no bytes for 20
 * s, not even an answer to three pings.
 *
 * This class replaces the keepalive of grpc-js, which relies on pings. Node sends no pings on a connection that drains
 * after a GOAWAY frame, so the keepalive would drop the calls on that connection. On such a connection, this class
 * sends SETTINGS instead, which the peer must acknowledge as well (RFC 9113, 6.5.3).
 *
 * Also limits the time until a connection is ready, because grpc-js has no such limit.
 */
export class Liveness {
  readonly connectTimeoutMs: number;
  /** The address or bridge program of the client, as the events of the connection report it. */
  readonly target: string;
  readonly #client: Client;
  /**
   * Sockets on which grpc-js is connecting. The value of each is the timer that ends the attempt; undefined if there is
   * no time limit.
   */
  readonly #sockets = new Map<Socket, NodeJS.Timeout | undefined>();
  /**
   * Connections that have been ready, including those that are draining. `quietChecks` is the number of checks since
   * the connection last received bytes.
   */
  readonly #connections = new Map<ClientHttp2Session, { bytesRead: number; quietChecks: number }>();
  #calls = 0;
  #timer: NodeJS.Timeout | undefined;

  #connecting: NodeJS.Timeout | undefined;
  #isGivenUp = false;
  #wasConnected = false;
  #isReady = false;
  /** Message of the error with which this class last closed a silent connection. */
  #silence: string | undefined;

  /** @param connectTimeoutMs time limit until a connection is ready */
  constructor(client: Client, connectTimeoutMs: number, target: string) {
    this.#client = client;
    this.target = target;
    this.connectTimeoutMs = connectTimeoutMs;
    this.#follow();
  }

  /** Whether there has ever been a connection. */
  get wasConnected(): boolean {
    return this.#wasConnected;
  }

  /** Whether there is a connection now. */
  get isConnected(): boolean {
    return this.#client.getChannel().getConnectivityState(false) === connectivityState.READY;
  }

  /** Number of calls in progress. */
  get calls(): number {
    return this.#calls;
  }

  /** Whether the last attempt to connect was ended by the time limit. */
  get isGivenUp(): boolean {
    return this.#isGivenUp;
  }

  /**
   * Returns the cause CONNECTION_LOST if a call failed because this class has closed its silent connection, as the
   * message of the error shows. Returns undefined for any other message.
   */
  lossOf(message: string): Cause | undefined {
    return message === this.#silence ? { code: "CONNECTION_LOST", message } : undefined;
  }

  /**
   * Must be called when a call begins. While there are calls, the timer keeps this process alive: a socket from which
   * nothing is read would not keep it alive.
   */
  begin(): void {
    if (++this.#calls > 1) return;
    this.#timer ??= setInterval(() => this.#check(), CHECK_INTERVAL_MS);
    this.#timer.ref();
  }

  end(): void {
    if (--this.#calls === 0) this.#timer?.unref();
  }

  /**
   * Limits the time that the handshakes on a socket may take. Each socket needs its own timer: when grpc-js retries
   * after a failure, the channel's state does not change, so a timer for that state would not start again.
   */
  limit(socket: Socket): void {
    const timer = this.#after(() => socket.destroy(new Error(this.#text)));
    this.#sockets.set(socket, timer);
    socket.once("close", () => {
      clearTimeout(timer);
      this.#sockets.delete(socket);
    });
  }

  #check(): void {
    if (this.#calls === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
    for (const [connection, seen] of this.#connections) {
      const { bytesRead } = connection.destroyed ? seen : connection.socket;
      seen.quietChecks = this.#calls === 0 || bytesRead !== seen.bytesRead ? 0 : seen.quietChecks + 1;
      seen.bytesRead = bytesRead;
      if (connection.destroyed) this.#connections.delete(connection);
      else if (seen.quietChecks > 0) this.#ask(connection, seen.quietChecks);
    }
  }

  /** Sends a ping or closes the connection, depending on the number of successive checks without received bytes. */
  #ask(connection: ClientHttp2Session, quietChecks: number): void {
    if (STOPS_READING) readAgain(connection);
    if (quietChecks % PING_CHECKS !== 0) return;
    if (quietChecks > PINGS * PING_CHECKS) {
      const seconds = (quietChecks * CHECK_INTERVAL_MS) / 1_000;
      this.#silence = `the agent has not answered for ${seconds} s (${PINGS} pings)`;
      // grpc-js treats ETIMEDOUT as a lost connection. The calls on the connection fail with the message of this error.
      connection.destroy(Object.assign(new Error(this.#silence), { code: "ETIMEDOUT" }));
    } else if (connection.closed) connection.settings({});
    else connection.ping(() => undefined);
  }

  /**
   * Follows the channel's state: limits the time of each attempt to connect, and records each connection that becomes
   * ready.
   */
  #follow(): void {
    const channel = this.#client.getChannel();
    const state = channel.getConnectivityState(false);
    clearTimeout(this.#connecting);
    if (state === connectivityState.SHUTDOWN) return;
    const { target } = this;
    if (this.#isReady) publish({ event: "disconnected", target });
    this.#isReady = state === connectivityState.READY;
    const event = EVENTS.get(state);
    if (event !== undefined) publish({ event, target });
    if (state === connectivityState.CONNECTING) {
      this.#connecting = this.#after(() => {
        abandonConnecting(this.#client, this.#text);
        for (const socket of this.#sockets.keys()) socket.destroy(new Error(this.#text));
      });
    } else if (state === connectivityState.READY) {
      this.#isGivenUp = false;
      this.#wasConnected = true;
      for (const timer of this.#sockets.values()) clearTimeout(timer);
      this.#sockets.clear();
      // grpc-js reports the state just before it stores the connection. So wait for a microtask, in which the
      // connection is stored. Do not wait for the next periodic check, because grpc-js may have replaced the connection
      // by then.
      queueMicrotask(() => {
        for (const connection of connectionsOf(this.#client)) {
          if (!this.#connections.has(connection)) this.#connections.set(connection, { bytesRead: -1, quietChecks: 0 });
        }
      });
    }
    channel.watchConnectivityState(state, Number.POSITIVE_INFINITY, () => this.#follow());
  }

  get #text(): string {
    return `no connection within ${this.connectTimeoutMs} ms`;
  }

  /** Starts the timer that ends an attempt to connect. Returns undefined if there is no time limit. */
  #after(giveUp: () => void): NodeJS.Timeout | undefined {
    if (this.connectTimeoutMs > LONGEST_TIMER_MS) return undefined;
    return setTimeout(() => {
      this.#isGivenUp = true;
      giveUp();
    }, this.connectTimeoutMs);
  }
}
