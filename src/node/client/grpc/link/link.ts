import type { ChannelCredentials, ChannelOptions } from "@grpc/grpc-js";
import type { Cause } from "../grpc-texts.ts";

/** A way to connect to an agent through grpc-js, which can also explain why there is no connection. */
export interface Link {
  /** The address that grpc-js dials, in the syntax of grpc-js. */
  readonly target: string;
  readonly credentials: ChannelCredentials;
  readonly options: ChannelOptions;
  /** Why the last attempt to connect failed. Undefined if grpc-js reports the reason itself. */
  failure?(): Cause | undefined;
  /** Finds out within a time limit why there is no connection; undefined if connecting works or the reason is unknown. */
  explain?(limitMs: number): Promise<Cause | undefined>;
  /** The address to which the client last connected; see `Channel.addressInUse`. */
  inUse?(): string | undefined;
  /** Prevents new connections. Open connections continue. */
  close?(): void;
  /** Frees what is only needed to make new connections, such as the TLS context. Open connections continue. */
  release?(): void;
}

/** Options of every kind of connection. */
interface Credentials {
  /** The instance token, which is the content of the token file. White space around the token is ignored. */
  readonly token: string;
  /**
   * Time limit until a connection is ready, in milliseconds. At the limit, calls that wait for the connection fail with
   * UNAVAILABLE and CONNECT_TIMED_OUT, and the next call connects again. Infinity means no limit. Default: 10 s.
   */
  readonly connectTimeoutMs?: number | undefined;
}

/** Connects to an agent's TCP listener with mutual TLS, or to its vsock listener if that uses TLS. */
export interface TcpOptions extends Credentials {
  /**
   * The agent's address, in one of three forms: `host:port`, with an IPv6 address in brackets; `vsock+unix:/path:port`,
   * with the unix socket of a VMM (Firecracker, Cloud Hypervisor) and a vsock port of its guest; or `vsock:CID:port`,
   * which requires socat. If you give a list of addresses of the same agent, the client tries the addresses in order,
   * and each attempt gets an equal share of the remaining time.
   */
  readonly address: string | readonly string[];
  /** Certificate of the authority that issued the agent's certificate, in PEM. */
  readonly caPem: string | Uint8Array;
  /** The client's certificate, in PEM, followed by the certificates of its chain, if there are any. */
  readonly certPem: string | Uint8Array;
  /** The private key of the client's certificate, in PEM. */
  readonly keyPem: string | Uint8Array;
  /**
   * The agent's own certificate. With this option, the client accepts an expired certificate if its key is the key of
   * the given certificate. Use this option only for the calls of a restore: a guest that is restored from an old
   * snapshot may have an expired certificate. Default: expired certificates are refused.
   */
  readonly pinnedCertPem?: string | Uint8Array | undefined;
  /**
   * The name that the agent's certificate must contain, whatever the address is. Default: DEFAULT_SERVER_NAME, which is
   * "guest-agent".
   */
  readonly serverName?: string | undefined;
}

/**
 * Connects to an agent's unix socket, or to its vsock listener without TLS. The mode of the socket file decides who may
 * connect.
 */
export interface UnixSocketOptions extends Credentials {
  /** `unix:` followed by the absolute path of the socket; or a vsock address or a list of addresses, as with TLS. */
  readonly address: string | readonly string[];
}

/**
 * A command that connects its standard input and output to the agent's socket, such as `docker exec -i <container>
 * guest-agent bridge`. It is started once for each connection.
 */
export interface BridgeOptions extends Credentials {
  /** Program and arguments. No shell is involved. */
  readonly bridge: readonly string[];
  /** Environment of the command. Default: the environment of this process. */
  readonly env?: Readonly<Record<string, string | undefined>> | undefined;
}

/** Address and credentials of an agent. */
export type ConnectOptions = TcpOptions | UnixSocketOptions | BridgeOptions;

/** The agent's default port in a sandbox, as the substrate contract defines it. */
export const DEFAULT_PORT = 7071;

/** The server name in the certificates that `guestctl issue` creates. */
export const DEFAULT_SERVER_NAME = "guest-agent";
