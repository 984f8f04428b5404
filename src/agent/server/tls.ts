import { constants, X509Certificate } from "node:crypto";
import type { DetailedPeerCertificate, SecureContextOptions, TlsOptions, TLSSocket } from "node:tls";
import type { TlsMaterial } from "../domain/index.ts";
import type { PeerCertificate } from "../listening/index.ts";
import { errnoOf } from "../../shared/errors.ts";

/**
 * TLS 1.3, HTTP/2, a client certificate, and no resumption: a ticket is a bearer credential, which a clone of this
 * guest would accept too. A client without a right certificate gets an alert instead of HTTP/2
 * (internals/handshakes.c): after the first frame of HTTP/2, clients dial again for as long as their call may take.
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
 * OpenSSL overwrites decrypted data that it has passed on, such as tokens (SSL_CTX_set_options(3)). Node has no name
 * for it.
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

/** Whether one of these authorities is in a certificate's chain (DER), or issued a link of it. */
export function isVouchedFor(chain: readonly Buffer[], { clientCa }: TlsMaterial): boolean {
  const authorities = Array.from(String(clientCa).matchAll(PEM_CERTIFICATE), ([pem]) => new X509Certificate(pem));
  return chain.some((der) => {
    const link = new X509Certificate(der);
    return authorities.some(
      (authority) => authority.raw.equals(der) || (link.checkIssued(authority) && link.verify(authority.publicKey)),
    );
  });
}

/** The certificate of a client whose handshake is complete. Undefined: it has none, and nothing of it may be read. */
export function peerCertificate(socket: TLSSocket): PeerCertificate | undefined {
  const certificate = socket.getPeerX509Certificate();
  // Node calls a resumed session without a certificate authorized.
  return certificate === undefined || socket.isSessionReused() ? undefined : described(certificate, socket);
}

/** Why a client's handshake failed, from Node's error. */
export function handshakeFailure(error: Error): string {
  const [, why] = /:certificate verify failed:[^:]*:\d+:(.+)$/m.exec(error.message) ?? [];
  if (why !== undefined) return `client certificate rejected: ${why}`;
  const code = errnoOf(error);
  if (code === "ERR_SSL_PEER_DID_NOT_RETURN_A_CERTIFICATE") return "client certificate required, but none was sent";
  // CHAIN_BYTES of internals/handshakes.c.
  if (code === "ERR_SSL_EXCESSIVE_MESSAGE_SIZE")
    return `TLS handshake failed: ${code}: the client's certificate chain exceeds 5.5 KiB`;
  return `TLS handshake failed: ${code ?? error.message}`;
}

/** What a certificate says, whether it is accepted or not. */
export function described(certificate: X509Certificate, socket: TLSSocket): PeerCertificate {
  const chain = chainOf(socket.getPeerCertificate(true));
  return {
    subject: certificate.subject.replaceAll("\n", ", "),
    notBeforeMs: certificate.validFromDate.getTime(),
    // A chain expires with its first link.
    notAfterMs: Math.min(...chain.map(({ valid_to: end }) => Date.parse(end))),
    chain: chain.map(({ raw }) => raw),
  };
}

/** The chain up to a self-signed certificate, or to one whose issuer is unknown. */
function chainOf(certificate: DetailedPeerCertificate): readonly DetailedPeerCertificate[] {
  // Node leaves an unknown issuer out, although its types do not say so.
  const issuer = certificate.issuerCertificate as DetailedPeerCertificate | undefined;
  return issuer === undefined || issuer === certificate ? [certificate] : [certificate, ...chainOf(issuer)];
}
