import type { CallOptions } from "./grpc/channel.ts";
import type { BridgeOptions, TcpOptions } from "./grpc/link/link.ts";

/** The names of all options of a type. The compiler checks that none is missing. */
export type Names<Options> = Readonly<Record<keyof Options, true>>;

/** The names of the options that every method accepts. */
export const CALL: Names<CallOptions> = { signal: true, requestTimeoutMs: true, waitForReady: true };

/** The options that `connect` accepts, for all kinds of connection together. */
export const CONNECT: Readonly<Record<string, true>> = {
  ...({
    address: true,
    caPem: true,
    certPem: true,
    keyPem: true,
    pinnedCertPem: true,
    serverName: true,
    connectTimeoutMs: true,
  } satisfies Names<Omit<TcpOptions, "token">>),
  ...({ bridge: true, env: true, token: true, connectTimeoutMs: true } satisfies Names<BridgeOptions>),
};
