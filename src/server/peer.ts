import type { ServerHttp2Session } from "node:http2";
import type { X509Certificate } from "node:crypto";
import { TLSSocket } from "node:tls";
import type { PeerCertificate } from "../rpc/index.ts";

/** The client's verified certificate; undefined on a connection without TLS. */
export function peerCertificate(socket: ServerHttp2Session["socket"]): PeerCertificate | undefined {
  if (!(socket instanceof TLSSocket)) return undefined;
  const certificate = socket.getPeerX509Certificate();
  if (certificate === undefined) return undefined;
  return {
    subject: certificate.subject.replaceAll("\n", ", "),
    fingerprint256: certificate.fingerprint256,
    notBeforeMs: certificate.validFromDate.getTime(),
    notAfterMs: endOfValidityMs(certificate),
  };
}

/** A chain is as good as its first link to expire. */
function endOfValidityMs(certificate: X509Certificate): number {
  const ownMs = certificate.validToDate.getTime();
  const issuer = certificate.issuerCertificate;
  return issuer === undefined ? ownMs : Math.min(ownMs, endOfValidityMs(issuer));
}
