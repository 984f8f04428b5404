import type { Socket } from "node:net";
import { clearUnreferenced } from "../domain/index.ts";
import { stopReading } from "../internals/index.ts";

/** Time for a client to read the TLS alert after its handshake failed. */
const LINGER_MS = 500;
/** Limit for the sockets that are kept open after a failed handshake. Above it, the oldest is closed. */
const LINGERING_LIMIT = 64;

/**
 * Keeps a socket open for a short time after a failed handshake, so that the client can read the TLS alert. Node would
 * destroy the socket at once. The kernel would then reset a connection with unread data, and clients such as grpc-go
 * would report the reset instead of the alert.
 */
export class FailedHandshakeLinger {
  /** The sockets that are kept open, the oldest first, with the timers that close them. */
  readonly #lingering = new Map<Socket, NodeJS.Timeout>();

  /**
   * Makes `socket.destroy()` wait for the next setImmediate(). If `begin` is called before that, the socket is not
   * destroyed then, but stays open for the time that `begin` grants.
   */
  hold(socket: Socket): void {
    socket.destroy = () => {
      stopReading(socket);
      setImmediate(() => {
        if (!this.#lingering.has(socket)) this.#end(socket);
      });
      return socket;
    };
  }

  /** Restores the socket's own `destroy`, which `hold` has replaced. Call it after a successful handshake. */
  release(socket: Socket): void {
    Reflect.deleteProperty(socket, "destroy");
  }

  /** Ends the connection after the data that was written, and closes the socket after at most LINGER_MS. */
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
    clearUnreferenced(this.#lingering.get(socket));
    this.#lingering.delete(socket);
  }
}
