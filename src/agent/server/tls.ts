import { constants, X509Certificate } from "node:crypto";
import type { DetailedPeerCertificate, SecureContextOptions, TlsOptions, TLSSocket } from "node:tls";
import type { TlsMaterial } from "../domain/index.ts";
import type { PeerCertificate } from "../listening/index.ts";
import { errnoOf } from "../../shared/errors.ts";

/**
 * The options of the TLS server.
 *
 * Session tickets are off, because any holder of a ticket could resume the session, even with a clone of this guest.
 *
 * If a client has no valid certificate, the server sends it a TLS alert, but no HTTP/2 frame before the alert
 * (internals/handshakes.c). If a gRPC client got a frame first, it would not report the alert, but would reconnect
 * until the deadline of its call.
 */
export function tlsOptions(material: TlsMaterial, handshakeTimeoutMs: number): TlsOptions {
  return {
    ...secureContextOptions(material),
    ALPNProtocols: ["h2"],
    requestCert: true,
    rejectUnauthorized: true,
    handshakeTimeout: handshakeTimeoutMs,
  };
}

/**
 * Makes OpenSSL overwrite decrypted data, such as tokens, once it was read (SSL_CTX_set_options(3)). Node does not
 * define this constant.
 */
const SSL_OP_CLEANSE_PLAINTEXT = 2;

/** The part of `tlsOptions` that changes with the credentials. */
export function secureContextOptions(material: TlsMaterial): SecureContextOptions {
  return {
    cert: material.cert,
    key: material.key,
    ca: material.clientCa,
    minVersion: "TLSv1.3",
    secureOptions: constants.SSL_OP_NO_TICKET | SSL_OP_CLEANSE_PLAINTEXT,
  };
}

const PEM_CERTIFICATE =
  /-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----[^-]+-----END (?:X509 |TRUSTED )?CERTIFICATE-----/g;

/** Whether a certificate of the chain (DER) is one of the authorities in `clientCa`, or was issued by one of them. */
export function isIssuedBy(chain: readonly Buffer[], { clientCa }: TlsMaterial): boolean {
  const authorities = Array.from(String(clientCa).matchAll(PEM_CERTIFICATE), ([pem]) => new X509Certificate(pem));
  return chain.some((der) => {
    const link = new X509Certificate(der);
    return authorities.some(
      (authority) => authority.raw.equals(der) || (link.checkIssued(authority) && link.verify(authority.publicKey)),
    );
  });
}

/**
 * The certificate of a client whose handshake is complete. Returns undefined if the client has no certificate; the
 * client's data must then not be read.
 */
export function peerCertificate(socket: TLSSocket): PeerCertificate | undefined {
  const certificate = socket.getPeerX509Certificate();
  // A resumed session is rejected: Node reports it as authorized even without a certificate.
  return certificate === undefined || socket.isSessionReused() ? undefined : described(certificate, socket);
}

/** Describes why a client's handshake failed, from Node's error. */
export function handshakeFailure(error: Error): string {
  const [, why] = /:certificate verify failed:[^:]*:\d+:(.+)$/m.exec(error.message) ?? [];
  if (why !== undefined) return `client certificate rejected: ${why}`;
  const code = errnoOf(error);
  if (code === "ERR_SSL_PEER_DID_NOT_RETURN_A_CERTIFICATE") return "client certificate required, but none was sent";
  // This error means that the chain exceeds CHAIN_BYTES of internals/handshakes.c.
  if (code === "ERR_SSL_EXCESSIVE_MESSAGE_SIZE")
    return `TLS handshake failed: ${code}: the client's certificate chain exceeds 5.5 KiB`;
  return `TLS handshake failed: ${code ?? error.message}`;
}

/** Describes a certificate, whether it is accepted or not. */
export function described(certificate: X509Certificate, socket: TLSSocket): PeerCertificate {
  const chain = chainOf(socket.getPeerCertificate(true));
  return {
    subject: certificate.subject.replaceAll("\n", ", "),
    notBeforeMs: certificate.validFromDate.getTime(),
    // A chain expires when the first of its certificates does.
    notAfterMs: Math.min(...chain.map(({ valid_to: end }) => Date.parse(end))),
    chain: chain.map(({ raw }) => raw),
  };
}

/** The chain up to a self-signed certificate, or up to one whose issuer is unknown. */
function chainOf(certificate: DetailedPeerCertificate): readonly DetailedPeerCertificate[] {
  // `issuerCertificate` is undefined if the issuer is unknown, although Node's types do not say so.
  const issuer = certificate.issuerCertificate as DetailedPeerCertificate | undefined;
  return issuer === undefined || issuer === certificate ? [certificate] : [certificate, ...chainOf(issuer)];
}
