import type { ChannelCredentials, ChannelOptions } from "@grpc/grpc-js";
import type { Cause } from "../grpc-texts.ts";

/** How a client's connections are made, in grpc-js's terms. */
export interface Link {
  /** A grpc-js target. */
  readonly target: string;
  readonly credentials: ChannelCredentials;
  readonly options: ChannelOptions;
  /** Why there is no connection, if the link knows more than gRPC. */
  failure?(): Cause | undefined;
  /** Connects once more to find out why there is no connection, within that time; undefined: there is one. */
  explain?(limitMs: number): Promise<Cause | undefined>;
  /** The address that the last connection was made to, of several. */
  inUse?(): string | undefined;
  /** Takes no more connections; those that are open go on. */
  close?(): void;
}

/** Credentials of every kind of connection. */
interface Credentials {
  /** The instance token as in its file; white space around it is ignored. */
  readonly token: string;
  /**
   * Time for a connection to be ready, in milliseconds. Then calls that wait for it fail with UNAVAILABLE and
   * CONNECT_TIMED_OUT, and the next dials anew. Infinity: no limit. Default: 10 s.
   */
  readonly connectTimeoutMs?: number | undefined;
}

/** An agent's TCP listener, over mutual TLS; also its vsock listener, if it has TLS there. */
export interface TcpOptions extends Credentials {
  /**
   * `host:port`, with an IPv6 address in brackets; `vsock+unix:/path:port` for the unix socket of a VMM (Firecracker,
   * Cloud Hypervisor) and a vsock port of its guest; `vsock:CID:port`, by way of socat. Or several addresses of one
   * agent, which are tried in order: each has its share of the time that is left.
   */
  readonly address: string | readonly string[];
  /** The authority that issued the agent's certificate. */
  readonly caPem: string | Uint8Array;
  readonly certPem: string | Uint8Array;
  readonly keyPem: string | Uint8Array;
  /**
   * The agent's own certificate. An agent with exactly its key is accepted although its certificate has expired, as in
   * a guest that is restored from a snapshot older than that. Only for the calls of a restore. Default: none is.
   */
  readonly pinnedCertPem?: string | Uint8Array | undefined;
  /** The name that the agent's certificate must have, whatever the address. Default: DEFAULT_SERVER_NAME. */
  readonly serverName?: string | undefined;
}

/** An agent's unix socket, or its vsock listener without TLS. The mode of the file decides who may connect. */
export interface UnixSocketOptions extends Credentials {
  /** `unix:` and the absolute path of the socket; or an address of vsock; or several, as of TcpOptions. */
  readonly address: string | readonly string[];
}

/**
 * A command that joins its standard input and output to the agent's socket, such as `docker exec -i <container>
 * guest-agent bridge`. It runs once for each connection.
 */
export interface BridgeOptions extends Credentials {
  /** Program and arguments. No shell is involved. */
  readonly bridge: readonly string[];
  /** Environment of the command. Default: that of this process. */
  readonly env?: Readonly<Record<string, string | undefined>> | undefined;
}

/** Address and credentials of an agent. */
export type ConnectOptions = TcpOptions | UnixSocketOptions | BridgeOptions;

/** The agent's port in a sandbox (the substrate contract's), unless another is chosen. */
export const DEFAULT_PORT = 7071;

/** The name in the certificates that `guestctl issue` makes. */
export const DEFAULT_SERVER_NAME = "guest-agent";
