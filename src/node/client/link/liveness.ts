import type { ClientHttp2Session } from "node:http2";
import { type Client, connectivityState } from "@grpc/grpc-js";
import { connectionsOf } from "../internals/grpc-js.ts";
import { readAgain } from "../internals/read-again.ts";

/** Interval of the looks at connections while there are calls. */
const LOOK_MS = 1_000;
/** Looks without a byte after which a connection gets a ping, and the next one after as many again. */
const PING_LOOKS = 5;
const PINGS = 3;

/**
 * Older versions of Node's HTTP/2 may stop reading a connection whose peer resets it during a write, and never see its
 * end.
 */
const STOPS_READING = Number.parseInt(process.versions.node, 10) < 26;

/**
 * Finds out that a connection with calls is dead: 20 s without a byte, and without an answer to three pings. Node sends
 * no pings on a connection that drains (GOAWAY), so grpc-js's own keepalive drops its calls. Here it is asked by
 * SETTINGS, which its peer must acknowledge as well (RFC 9113, 6.5.3).
 */
export class Liveness {
  readonly #client: Client;
  /** Connections that were ready, also those that drain, and how many looks ago something came on each. */
  readonly #connections = new Map<ClientHttp2Session, { bytesRead: number; quietLooks: number }>();
  #calls = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(client: Client) {
    this.#client = client;
    this.#noteWhenReady();
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
      else if (seen.quietLooks > 0) ask(connection, seen.quietLooks);
    }
  }

  /** Notes each connection as it becomes ready; a later one may have taken its place at the next look. */
  #noteWhenReady(): void {
    const channel = this.#client.getChannel();
    const state = channel.getConnectivityState(false);
    if (state === connectivityState.SHUTDOWN) return;
    channel.watchConnectivityState(state, Number.POSITIVE_INFINITY, () => {
      // grpc-js reports the state just before it stores the connection.
      queueMicrotask(() => {
        for (const connection of connectionsOf(this.#client)) {
          if (!this.#connections.has(connection)) this.#connections.set(connection, { bytesRead: -1, quietLooks: 0 });
        }
      });
      this.#noteWhenReady();
    });
  }
}

/** Asks for a sign of life, or ends the connection, after that many looks without a byte. */
function ask(connection: ClientHttp2Session, quietLooks: number): void {
  if (STOPS_READING) readAgain(connection);
  if (quietLooks % PING_LOOKS !== 0) return;
  if (quietLooks > PINGS * PING_LOOKS) {
    const seconds = (quietLooks * LOOK_MS) / 1_000;
    const error = new Error(`the agent has said nothing for ${seconds} s and answered none of ${PINGS} pings`);
    // grpc-js takes this code for a connection that is lost, and passes the message on.
    connection.destroy(Object.assign(error, { code: "ETIMEDOUT" }));
  } else if (connection.closed) connection.settings({});
  else connection.ping(() => undefined);
}
