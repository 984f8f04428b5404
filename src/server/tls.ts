import { constants, X509Certificate } from "node:crypto";
import type { DetailedPeerCertificate, SecureContextOptions, TlsOptions, TLSSocket } from "node:tls";
import type { PeerCertificate } from "../rpc/index.ts";

/** What the management listener needs for mutual TLS, as PEM. */
export interface TlsMaterial {
  readonly cert: Buffer | string;
  readonly key: Buffer | string;
  /** The authorities whose client certificates are accepted. */
  readonly clientCa: Buffer | string;
}

/**
 * TLS 1.3, HTTP/2, a client certificate, and no resumption: a ticket is a bearer credential that a clone of this guest
 * would honour as well. Node would cut a client with a wrong certificate off without a word; the handshake is completed
 * instead, and whoever owns the listener must look at `authorized` before it reads anything (see `peerCertificate`).
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

/** The part of `tlsOptions` that changes with the credentials. */
export function secureContextOptions(material: TlsMaterial): SecureContextOptions {
  return {
    cert: material.cert,
    key: material.key,
    ca: material.clientCa,
    minVersion: "TLSv1.3",
    secureOptions: constants.SSL_OP_NO_TICKET,
  };
}

const PEM_CERTIFICATE =
  /-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----[^-]+-----END (?:X509 |TRUSTED )?CERTIFICATE-----/g;

/** Whether one of these authorities is in the chain of a certificate (DER), or issued a link of it. */
export function isVouchedFor(chain: readonly Buffer[], { clientCa }: TlsMaterial): boolean {
  const authorities = Array.from(String(clientCa).matchAll(PEM_CERTIFICATE), ([pem]) => new X509Certificate(pem));
  return chain.some((der) => {
    const link = new X509Certificate(der);
    return authorities.some(
      (authority) => authority.raw.equals(der) || (link.checkIssued(authority) && link.verify(authority.publicKey)),
    );
  });
}

/**
 * Why a client is refused although the right authority issued its certificate; undefined: it is not. `nowMs` in
 * milliseconds since 1970.
 */
export type VerifyPeer = (certificate: PeerCertificate, nowMs: number) => string | undefined;

/**
 * The client's verified certificate, or why it is refused. Nothing else stands between a client and the agent on TCP: the
 * handshake succeeds with any certificate, and with none.
 */
export function peerCertificate(socket: TLSSocket): PeerCertificate | string {
  const certificate = socket.getPeerX509Certificate();
  // Before the verdict: Node calls a resumed session without a certificate authorized.
  if (certificate === undefined || socket.isSessionReused()) return "PEER_DID_NOT_RETURN_A_CERTIFICATE";
  if (!socket.authorized) return String(socket.authorizationError);
  const chain = chainOf(socket.getPeerCertificate(true));
  return {
    subject: certificate.subject.replaceAll("\n", ", "),
    fingerprint256: certificate.fingerprint256,
    notBeforeMs: certificate.validFromDate.getTime(),
    // A chain is as good as its first link to expire.
    notAfterMs: Math.min(...chain.map(({ valid_to: end }) => Date.parse(end))),
    chain: chain.map(({ raw }) => raw),
  };
}

/** The last link is its own issuer, or one whose issuer is not known. */
function chainOf(certificate: DetailedPeerCertificate): readonly DetailedPeerCertificate[] {
  // Not typed so, but an unknown issuer is left out.
  const issuer = certificate.issuerCertificate as DetailedPeerCertificate | undefined;
  return issuer === undefined || issuer === certificate ? [certificate] : [certificate, ...chainOf(issuer)];
}

/**
 * Refuses certificates that have expired by the guest clock. Those that are not valid yet pass: the clock of a restored
 * guest is behind, and the very call that sets it must get through.
 */
export const refuseExpired: VerifyPeer = (certificate, nowMs) =>
  nowMs >= certificate.notAfterMs ? "CERT_HAS_EXPIRED" : undefined;
