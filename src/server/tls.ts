import { constants, X509Certificate } from "node:crypto";
import type { SecureContextOptions, TlsOptions } from "node:tls";

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
