import { constants, X509Certificate } from "node:crypto";
import type { DetailedPeerCertificate, SecureContextOptions, TlsOptions, TLSSocket } from "node:tls";
import type { TlsMaterial } from "../domain/index.ts";
import type { PeerCertificate } from "../listening/index.ts";

/**
 * TLS 1.3, HTTP/2, a client certificate, and no resumption: a ticket is a bearer credential, which a clone of this
 * guest would accept too. Node would end a handshake with a wrong certificate without a reason. Here it completes, and
 * the listener must check `authorized` before it reads anything (see `peerCertificate`).
 */
export function tlsOptions(material: TlsMaterial, handshakeTimeoutMs: number): TlsOptions {
  return {
    ...secureContextOptions(material),
    ALPNProtocols: ["h2"],
    requestCert: true,
    rejectUnauthorized: false,
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

/** Why a client of the right authority is refused; undefined: it is not. `nowMs` in milliseconds since 1970. */
export type VerifyPeer = (certificate: PeerCertificate, nowMs: number) => string | undefined;

/** The client's verified certificate, or why it is refused: on TCP only this refuses clients, not the handshake. */
export function peerCertificate(socket: TLSSocket): PeerCertificate | string {
  const certificate = socket.getPeerX509Certificate();
  // Check this first: Node calls a resumed session without a certificate authorized.
  if (certificate === undefined || socket.isSessionReused()) return "PEER_DID_NOT_RETURN_A_CERTIFICATE";
  if (!socket.authorized) return String(socket.authorizationError);
  return described(certificate, socket);
}

/** Why the addon refused a client's certificate, from the error of its handshake; undefined: that is not why. */
export function refusedCertificate({ message }: Error): string | undefined {
  return /:certificate verify failed:[^:]*:\d+:(.+)$/m.exec(message)?.[1];
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

/** Refuses certificates that have expired, but not those of the future: a restored guest's clock is behind. */
export const refuseExpired: VerifyPeer = (certificate, nowMs) =>
  nowMs >= certificate.notAfterMs
    ? `expired on ${new Date(certificate.notAfterMs).toISOString()}, by the guest's clock`
    : undefined;
