import type { ServerHttp2Session } from "node:http2";
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
    notAfterMs: certificate.validToDate.getTime(),
  };
}
