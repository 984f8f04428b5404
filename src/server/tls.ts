import { constants } from "node:crypto";
import type { SecureServerOptions } from "node:http2";

/** What the management listener needs for mutual TLS, as PEM. */
export interface TlsMaterial {
  readonly cert: Buffer | string;
  readonly key: Buffer | string;
  /** The authorities whose client certificates are accepted. */
  readonly clientCa: Buffer | string;
}

/**
 * TLS 1.3, HTTP/2, a client certificate, and no resumption: a ticket is a bearer credential that a clone of this guest
 * would honour as well.
 */
export function tlsOptions(material: TlsMaterial, handshakeTimeoutMs: number): SecureServerOptions {
  return {
    ...secureContextOptions(material),
    ALPNProtocols: ["h2"],
    allowHTTP1: false,
    requestCert: true,
    rejectUnauthorized: true,
    handshakeTimeout: handshakeTimeoutMs,
  };
}

/** The part of `tlsOptions` that changes with the credentials. */
export function secureContextOptions(material: TlsMaterial): SecureServerOptions {
  return {
    cert: material.cert,
    key: material.key,
    ca: material.clientCa,
    minVersion: "TLSv1.3",
    secureOptions: constants.SSL_OP_NO_TICKET,
  };
}
