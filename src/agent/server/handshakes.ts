import { createServer, type Server, type TLSSocket } from "node:tls";
import type { Log, TlsMaterial } from "../domain/index.ts";
import { errnoOf } from "../../shared/errors.ts";
import { type AcceptedConnection, connectionOf } from "../listening/index.ts";
import { FailedHandshakeLinger } from "./failed-handshake-linger.ts";
import { handshakeFailure, isIssuedBy, peerCertificate, secureContextOptions, tlsOptions } from "./tls.ts";

/** Makes the TLS handshakes of a listener's connections, and rejects clients without a valid certificate. */
export class Handshakes {
  readonly #server: Server;
  readonly #log: Log;
  readonly #listener: string;
  readonly #linger = new FailedHandshakeLinger();
  /** The credentials of the last `setCredentials`; undefined before the first call. */
  #renewed: TlsMaterial | undefined;

  /**
   * @param options.listener the listener's name in the log, such as `tcp`
   * @param secured is called for each completed handshake, with the connection and its TLS socket
   */
  constructor(
    tls: TlsMaterial,
    { timeoutMs, log, listener }: { readonly timeoutMs: number; readonly log: Log; readonly listener: string },
    secured: (connection: AcceptedConnection, socket: TLSSocket) => void,
  ) {
    this.#log = log;
    this.#listener = listener;
    this.#server = createServer(tlsOptions(tls, timeoutMs));
    this.#server.on("secureConnection", (socket) => {
      const connection = connectionOf(socket);
      if (connection === undefined) socket.destroy();
      else if (this.#admits(connection, socket)) secured(connection, socket);
    });
    this.#server.on("tlsClientError", (error, socket) => {
      const connection = connectionOf(socket);
      if (connection !== undefined) this.#failed(connection, error);
    });
  }

  /** Uses these credentials for handshakes that begin from now on. */
  setCredentials(tls: TlsMaterial): void {
    this.#server.setSecureContext(secureContextOptions(tls));
    this.#renewed = tls;
  }

  begin({ socket }: AcceptedConnection): void {
    // If the peer disconnects during the handshake, close the socket at once instead of waiting for the handshake's
    // time limit.
    socket.allowHalfOpen = false;
    this.#linger.hold(socket);
    this.#server.emit("connection", socket);
  }

  /** Whether the client's certificate is accepted. If not, this closes the connection. */
  #admits(connection: AcceptedConnection, socket: TLSSocket): boolean {
    this.#linger.release(connection.socket);
    socket.allowHalfOpen = true;
    const certificate = peerCertificate(socket);
    if (socket.alpnProtocol !== "h2") connection.drop("does not speak HTTP/2 (ALPN)");
    else if (certificate === undefined) connection.drop("client certificate required, but none was sent");
    // The handshake may have begun before the CA was replaced, so the certificate is also checked against the new CA.
    else if (this.#renewed !== undefined && !isIssuedBy(certificate.chain, this.#renewed))
      connection.drop("client certificate rejected: its CA was replaced");
    else {
      connection.peer.certificate = certificate;
      return true;
    }
    return false;
  }

  #failed(connection: AcceptedConnection, error: Error): void {
    const code = errnoOf(error);
    // The client has disconnected, as health checks of load balancers do. This is not worth a warning.
    if (code === "ECONNRESET") {
      this.#log.debug("connection_unused", { listener: this.#listener, peer: connection.peer.address });
      connection.destroy();
      return;
    }
    connection.failed(handshakeFailure(error));
    connection.closing();
    // With such a code, the error comes from OpenSSL, which also sends an alert. The client should be able to read the
    // alert, so the socket stays open for a short time.
    if (code?.startsWith("ERR_SSL_") === true) this.#linger.begin(connection.socket);
    else connection.destroy();
  }
}
