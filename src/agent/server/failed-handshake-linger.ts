import type { Socket } from "node:net";
import { stopReading } from "../internals/index.ts";

/** Time for a client whose handshake failed to read why. */
const LINGER_MS = 500;
/** Such clients that may wait at once. One more closes the oldest. */
const LINGERING_LIMIT = 64;

/**
 * Keeps sockets open for a moment after their handshakes have failed. Node destroys a socket with its failed handshake.
 * What the client has sent or still writes then resets the connection, and some clients (grpc-go) report that instead
 * of the alert.
 */
export class FailedHandshakeLinger {
  /** Oldest first. */
  readonly #lingering = new Map<Socket, NodeJS.Timeout>();

  /** From now on its `destroy` waits for the end of this tick, in which `begin` may be called. */
  hold(socket: Socket): void {
    socket.destroy = () => {
      stopReading(socket);
      setImmediate(() => {
        if (!this.#lingering.has(socket)) this.#end(socket);
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
    if (socket.destroyed || this.#lingering.has(socket)) return;
    const end = setTimeout(() => this.#end(socket), LINGER_MS);
    end.unref();
    this.#lingering.set(socket, end);
    socket.once("close", () => this.#forget(socket));
    socket.end();
    for (const oldest of this.#lingering.keys()) {
      if (this.#lingering.size <= LINGERING_LIMIT) return;
      this.#end(oldest);
    }
  }

  #end(socket: Socket): void {
    this.#forget(socket);
    this.release(socket);
    socket.destroy();
  }

  #forget(socket: Socket): void {
    clearTimeout(this.#lingering.get(socket));
    this.#lingering.delete(socket);
  }
}
