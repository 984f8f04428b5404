import type { CallOptions } from "./channel.ts";
import type { BridgeOptions, TcpOptions } from "./link/link.ts";

/** The names of all options of a type. The compiler checks that none is missing. */
export type Names<Options> = Readonly<Record<keyof Options, true>>;

/** Names of the options of every call. */
export const CALL: Names<CallOptions> = { signal: true, requestTimeoutMs: true, waitForReady: true };

/** Names of the options of `connect`. */
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
