import type { ChannelCredentials, ChannelOptions } from "@grpc/grpc-js";

/** What carries the connections of a client, in the terms of grpc-js. */
export interface Link {
  /** A grpc-js target. */
  readonly target: string;
  readonly credentials: ChannelCredentials;
  readonly options: ChannelOptions;
  /** Why there is no connection, where the link knows more than gRPC does. */
  failure(): string | undefined;
  /** Takes no more connections; those that are open go on. */
  close(): void;
}

/** What every connection needs, whatever carries it. */
interface Credentials {
  /** The instance token, as its file holds it: white space around it is left out. */
  readonly token: string;
}

/** An agent's TCP listener, over mutual TLS. */
export interface TcpOptions extends Credentials {
  /** `host:port`, with an IPv6 address in brackets. */
  readonly address: string;
  /** The authority that issued the agent's certificate. */
  readonly caPem: string | Uint8Array;
  readonly certPem: string | Uint8Array;
  readonly keyPem: string | Uint8Array;
  /** The name that the agent's certificate must have, whatever the address. Default: DEFAULT_SERVER_NAME. */
  readonly serverName?: string | undefined;
}

/** An agent's unix socket: no TLS, the file's mode says who may connect. */
export interface UnixSocketOptions extends Credentials {
  /** `unix:` and the absolute path of the socket. */
  readonly address: string;
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

/** Where an agent is and how to be let in. */
export type ConnectOptions = TcpOptions | UnixSocketOptions | BridgeOptions;

/** The name in the certificates that `guestctl issue` makes. */
export const DEFAULT_SERVER_NAME = "guest-agent";
