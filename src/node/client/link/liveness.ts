import type { ClientHttp2Session } from "node:http2";
import type { Socket } from "node:net";
import { type Client, connectivityState } from "@grpc/grpc-js";
import type { Cause } from "../grpc-texts.ts";
import { abandonConnecting, connectionsOf } from "../internals/grpc-js.ts";
import { readAgain } from "../internals/read-again.ts";

/** Interval of the looks at connections while there are calls. */
const LOOK_MS = 1_000;
/** Silent looks before each ping. */
const PING_LOOKS = 5;
const PINGS = 3;
/** Node's timers take no longer time. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/**
 * Older versions of Node's HTTP/2 may stop reading a connection whose peer resets it during a write, and never see its
 * end.
 */
const STOPS_READING = Number.parseInt(process.versions.node, 10) < 26;

/**
 * Finds out that a connection with calls is dead: 20 s without a byte, and without an answer to three pings. Node sends
 * no pings on a connection that drains (GOAWAY), so grpc-js's own keepalive drops its calls. Here it is asked by
 * SETTINGS, which its peer must acknowledge as well (RFC 9113, 6.5.3). A connection that is not ready in time is given
 * up too: grpc-js has no limit for that.
 */
export class Liveness {
  readonly connectTimeoutMs: number;
  readonly #client: Client;
  /** Sockets on which connections are being made, and their limits. */
  readonly #sockets = new Map<Socket, NodeJS.Timeout | undefined>();
  /** Connections that were ready, also those that drain, and how many looks ago something came on each. */
  readonly #connections = new Map<ClientHttp2Session, { bytesRead: number; quietLooks: number }>();
  #calls = 0;
  #timer: NodeJS.Timeout | undefined;

  #connecting: NodeJS.Timeout | undefined;
  #isGivenUp = false;
  #wasConnected = false;
  /** Why the last silent connection was ended. */
  #silence: string | undefined;

  /** @param connectTimeoutMs time limit for a connection to be ready */
  constructor(client: Client, connectTimeoutMs: number) {
    this.#client = client;
    this.connectTimeoutMs = connectTimeoutMs;
    this.#follow();
  }

  /** There has been a connection. */
  get wasConnected(): boolean {
    return this.#wasConnected;
  }

  /** Calls in progress. */
  get calls(): number {
    return this.#calls;
  }

  /** The last attempt to connect was given up because it took too long. */
  get isGivenUp(): boolean {
    return this.#isGivenUp;
  }

  /** The cause where a call ended with these words because its connection was silent; undefined: a different one. */
  lossOf(message: string): Cause | undefined {
    return message === this.#silence ? { code: "CONNECTION_LOST", message } : undefined;
  }

  /** A call has begun. A connection that is not read keeps no program alive; its call does. */
  begin(): void {
    if (++this.#calls > 1) return;
    this.#timer ??= setInterval(() => this.#look(), LOOK_MS);
    this.#timer.ref();
  }

  end(): void {
    if (--this.#calls === 0) this.#timer?.unref();
  }

  /** Limits the handshakes on a socket. After a failure the channel's state does not tell of a new attempt. */
  limit(socket: Socket): void {
    const timer = this.#after(() => socket.destroy(new Error(this.#text)));
    this.#sockets.set(socket, timer);
    socket.once("close", () => {
      clearTimeout(timer);
      this.#sockets.delete(socket);
    });
  }

  #look(): void {
    if (this.#calls === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
    for (const [connection, seen] of this.#connections) {
      const { bytesRead } = connection.destroyed ? seen : connection.socket;
      seen.quietLooks = this.#calls === 0 || bytesRead !== seen.bytesRead ? 0 : seen.quietLooks + 1;
      seen.bytesRead = bytesRead;
      if (connection.destroyed) this.#connections.delete(connection);
      else if (seen.quietLooks > 0) this.#ask(connection, seen.quietLooks);
    }
  }

  /** Asks for a sign of life, or ends the connection, after that many looks without a byte. */
  #ask(connection: ClientHttp2Session, quietLooks: number): void {
    if (STOPS_READING) readAgain(connection);
    if (quietLooks % PING_LOOKS !== 0) return;
    if (quietLooks > PINGS * PING_LOOKS) {
      const seconds = (quietLooks * LOOK_MS) / 1_000;
      this.#silence = `the agent has not answered for ${seconds} s (${PINGS} pings)`;
      // grpc-js takes this code for a connection that is lost, and passes the message on.
      connection.destroy(Object.assign(new Error(this.#silence), { code: "ETIMEDOUT" }));
    } else if (connection.closed) connection.settings({});
    else connection.ping(() => undefined);
  }

  /** Follows the states of the channel: limits each attempt to connect, and notes each connection that is ready. */
  #follow(): void {
    const channel = this.#client.getChannel();
    const state = channel.getConnectivityState(false);
    clearTimeout(this.#connecting);
    if (state === connectivityState.SHUTDOWN) return;
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
      // grpc-js reports the state just before it stores the connection. A later one may have its place at the next look.
      queueMicrotask(() => {
        for (const connection of connectionsOf(this.#client)) {
          if (!this.#connections.has(connection)) this.#connections.set(connection, { bytesRead: -1, quietLooks: 0 });
        }
      });
    }
    channel.watchConnectivityState(state, Number.POSITIVE_INFINITY, () => this.#follow());
  }

  get #text(): string {
    return `no connection within ${this.connectTimeoutMs} ms`;
  }

  /** Gives the attempt up that waits no longer; undefined: there is no limit. */
  #after(giveUp: () => void): NodeJS.Timeout | undefined {
    if (this.connectTimeoutMs > LONGEST_TIMER_MS) return undefined;
    return setTimeout(() => {
      this.#isGivenUp = true;
      giveUp();
    }, this.connectTimeoutMs);
  }
}
