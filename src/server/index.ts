export { bridge } from "./bridge.ts";
export { refuseExpired } from "./expired-peer.ts";
export type { VerifyPeer } from "./listener.ts";
export { DEFAULT_SERVER_LIMITS, type ServerLimits } from "./limits.ts";
export { ManagementServer, type ManagementServerOptions } from "./management.ts";
export type { TlsMaterial } from "./tls.ts";
export { TOKEN_METADATA_KEY, tokenAuthenticator, type TokenCheck } from "./token.ts";
