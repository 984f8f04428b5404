import type { ServerHttp2Session } from "node:http2";
import { type DetailedPeerCertificate, TLSSocket } from "node:tls";
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
    notAfterMs: endOfValidityMs(socket.getPeerCertificate(true)),
  };
}

/** A chain is as good as its first link to expire. Its last link is its own issuer, or one that is not known. */
function endOfValidityMs(certificate: DetailedPeerCertificate): number {
  const ownMs = Date.parse(certificate.valid_to);
  // Not typed so, but an unknown issuer is left out.
  const issuer = certificate.issuerCertificate as DetailedPeerCertificate | undefined;
  return issuer === undefined || issuer === certificate ? ownMs : Math.min(ownMs, endOfValidityMs(issuer));
}
