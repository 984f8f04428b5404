import type { DetailedPeerCertificate, TLSSocket } from "node:tls";
import type { PeerCertificate } from "../rpc/index.ts";

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
