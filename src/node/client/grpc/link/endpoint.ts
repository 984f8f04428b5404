import { checkServerIdentity, connect as connectTls, type SecureContext, type TLSSocket } from "node:tls";
import type { Duplex } from "node:stream";

/** TLS settings of an endpoint. */
export interface TlsSettings {
  readonly context: SecureContext;
  readonly serverName: string;
}

/** An endpoint that grpc-js dials itself: a TCP port or a unix socket. */
export interface DirectEndpoint {
  /** The address as the caller wrote it. */
  readonly address: string;
  readonly to: { readonly host: string; readonly port: number } | { readonly path: string };
  /** If undefined, the connection is without TLS. */
  readonly tls?: TlsSettings | undefined;
}

/** One address of an agent, parsed. */
export interface Endpoint extends Omit<DirectEndpoint, "to"> {
  /** A TCP port, a unix socket, or a program that connects its standard input and output to the agent. */
  readonly to: DirectEndpoint["to"] | { readonly command: readonly [program: string, ...args: string[]] };
  /**
   * If set, the unix socket belongs to a VMM (Firecracker, Cloud Hypervisor), and a CONNECT line must ask the VMM for
   * this vsock port first.
   */
  readonly vsockPort?: number | undefined;
}

/** Starts TLS as a client. The caller handles the events of the returned socket. */
export function startTls(socket: Duplex, { context, serverName }: TlsSettings): TLSSocket {
  return connectTls({
    socket,
    secureContext: context,
    servername: serverName,
    ALPNProtocols: ["h2"],
    checkServerIdentity: (_host, certificate) => checkServerIdentity(serverName, certificate),
  });
}
