export { bridge } from "./bridge.ts";
export { refuseExpired } from "./expired-peer.ts";
export type { VerifyPeer } from "./listener.ts";
export { type ServerLimits } from "./limits.ts";
export { ManagementServer } from "./management.ts";
export type { TlsMaterial } from "./tls.ts";
export { tokenAuthenticator, type TokenCheck } from "./token.ts";
