import type { Socket } from "node:net";
import { ChannelCredentials } from "@grpc/grpc-js";

/** How often to read from a quiet connection. */
const LOOK_MS = 1_000;

type Connector = ReturnType<ChannelCredentials["_createSecureConnector"]>;
type Connected = Awaited<ReturnType<Connector["connect"]>>;
/** What Node's sockets have and do not declare. */
interface WithHandle {
  readonly _handle?: { readStart?(): number } | null;
}

/**
 * Credentials whose connections notice that they were cut. Where a write meets the peer's reset, the HTTP/2 of Node 20 and 22 stops
 * reading and never learns of the end: calls hang until the keepalive gives up, and a program that waits for nothing else just ends.
 * Node 26 needs none of this. grpc-js shows its sockets only to what secures them, hence its underscored methods.
 */
export class NoticingCredentials extends ChannelCredentials {
  readonly #credentials: ChannelCredentials;

  constructor(credentials: ChannelCredentials) {
    super();
    this.#credentials = credentials;
  }

  override _isSecure(): boolean {
    return this.#credentials._isSecure();
  }

  override _equals(other: ChannelCredentials): boolean {
    return other instanceof NoticingCredentials && this.#credentials._equals(other.#credentials);
  }

  override _createSecureConnector(...parts: Parameters<ChannelCredentials["_createSecureConnector"]>): Connector {
    const connector = this.#credentials._createSecureConnector(...parts);
    return {
      connect: async (socket): Promise<Connected> => {
        const connected = await connector.connect(socket);
        lookWhileQuiet(connected.socket);
        return connected;
      },
      waitForReady: () => connector.waitForReady(),
      getCallCredentials: () => connector.getCallCredentials(),
      destroy: () => connector.destroy(),
    };
  }
}

/** Reads from a quiet socket: that finds the end of a connection that Node has stopped reading. */
function lookWhileQuiet(socket: Socket): void {
  let { bytesRead } = socket;
  const timer = setInterval(() => {
    // This changes nothing on a socket that Node still reads.
    if (socket.bytesRead === bytesRead) (socket as WithHandle)._handle?.readStart?.();
    ({ bytesRead } = socket);
  }, LOOK_MS).unref();
  socket.once("close", () => clearInterval(timer));
  // grpc-js refers to a socket while it has calls. One that is not read keeps no program alive; this then does.
  const [ref, unref] = [socket.ref.bind(socket), socket.unref.bind(socket)];
  socket.ref = (): Socket => {
    timer.ref();
    return ref();
  };
  socket.unref = (): Socket => {
    timer.unref();
    return unref();
  };
}
