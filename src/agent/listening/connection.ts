/** A verified client certificate. */
export interface PeerCertificate {
  /** Distinguished name, as Node prints it. */
  readonly subject: string;
  /** Start of its validity, milliseconds since 1970. */
  readonly notBeforeMs: number;
  /** End of its validity or of its issuers', whichever is first, milliseconds since 1970. */
  readonly notAfterMs: number;
  /** The certificate and its known issuers, DER. */
  readonly chain: readonly Buffer[];
}

/** A connection, identified by the object itself. */
export interface Connection {
  /** Number of the connection in this process, from 1. For logs. */
  readonly id: number;
  readonly peer: {
    /** `address:port`, or "unix". */
    readonly address: string;
    /** Undefined on a connection without TLS. */
    readonly certificate: PeerCertificate | undefined;
  };
}
