export { bridge } from "./bridge.ts";
export { ManagementServer, type ServerLimits } from "./management.ts";
export { tokenAuthenticator, tokenField, type TokenCheck } from "./token.ts";
