export { bridge } from "./bridge.ts";
export type { ServerLimits } from "./listener.ts";
export { ManagementServer } from "./management.ts";
export { tokenAuthenticator, tokenField, type TokenCheck } from "./token.ts";
