import type { Socket } from "node:net";
import { stopReading } from "../internals/index.ts";

/** Time for a client whose handshake failed to read why. */
const FAREWELL_MS = 500;
/** Such clients that may wait at once. One more closes the oldest. */
const FAREWELLS_AT_ONCE = 64;

/**
 * Keeps sockets open for a moment after their handshakes have failed. Node destroys a socket with its failed handshake.
 * What the client has sent or still writes then resets the connection, and some clients (grpc-go) report that instead
 * of the alert.
 */
export class FailedHandshakeLinger {
  /** Oldest first. */
  readonly #waiting = new Map<Socket, NodeJS.Timeout>();

  /** From now on its `destroy` waits for the end of this tick, in which `begin` may be called. */
  hold(socket: Socket): void {
    socket.destroy = () => {
      stopReading(socket);
      setImmediate(() => {
        if (!this.#waiting.has(socket)) this.#end(socket);
      });
      return socket;
    };
  }

  /** The handshake is complete: the socket is as it was. */
  release(socket: Socket): void {
    Reflect.deleteProperty(socket, "destroy");
  }

  /** Ends the connection after what was written, and closes the socket a little later. */
  begin(socket: Socket): void {
    if (socket.destroyed || this.#waiting.has(socket)) return;
    const end = setTimeout(() => this.#end(socket), FAREWELL_MS);
    end.unref();
    this.#waiting.set(socket, end);
    socket.once("close", () => this.#forget(socket));
    socket.end();
    for (const oldest of this.#waiting.keys()) {
      if (this.#waiting.size <= FAREWELLS_AT_ONCE) return;
      this.#end(oldest);
    }
  }

  #end(socket: Socket): void {
    this.#forget(socket);
    this.release(socket);
    socket.destroy();
  }

  #forget(socket: Socket): void {
    clearTimeout(this.#waiting.get(socket));
    this.#waiting.delete(socket);
  }
}
