import { type ClientHttp2Session, connect, type OutgoingHttpHeaders } from "node:http2";
import { type Identity, SERVER_NAME } from "../../fixtures/certificates.ts";

const HEALTH = "/svc.guest.v1alpha1.GuestAgent/Health";
/** A gRPC message without content: not compressed, no bytes. */
const EMPTY_MESSAGE = Buffer.alloc(5);

/** How a raw session is dialled. */
export interface RawTarget {
  readonly port: number;
  /** The server's authority; undefined: no TLS at all. */
  readonly ca?: string;
  /** The client's certificate; undefined: none. */
  readonly client?: Identity;
}

/** One HTTP/2 connection: unlike a gRPC client it never reconnects. */
export class RawConnection implements Disposable {
  readonly #session: ClientHttp2Session;

  constructor({ port, ca, client }: RawTarget) {
    this.#session =
      ca === undefined
        ? connect(`http://127.0.0.1:${port}`)
        : connect(`https://127.0.0.1:${port}`, { ca, servername: SERVER_NAME, ...client });
    this.#session.on("error", () => undefined);
  }

  /** Calls Health. Resolves with the number of the gRPC status; undefined if the connection is dead. */
  health(token?: string): Promise<number | undefined> {
    if (this.#session.destroyed || this.#session.closed) return Promise.resolve(undefined);
    const headers: OutgoingHttpHeaders = {
      ":method": "POST",
      ":path": HEALTH,
      "content-type": "application/grpc",
      te: "trailers",
      ...(token !== undefined && { "svc-instance-token": token }),
    };
    const stream = this.#session.request(headers);
    return new Promise((resolve) => {
      const settle = (received: { readonly "grpc-status"?: unknown }): void => {
        const { "grpc-status": status } = received;
        if (status !== undefined) resolve(Number(status));
      };
      stream.on("response", settle).on("trailers", settle);
      stream.on("error", () => undefined).on("close", () => resolve(undefined));
      stream.resume().end(EMPTY_MESSAGE);
    });
  }

  [Symbol.dispose](): void {
    this.#session.destroy();
  }
}
