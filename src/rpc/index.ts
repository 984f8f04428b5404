export { bytesFieldFrame, decodeMessage, type Frame, messageFrame, tryBytesField } from "./codec.ts";
export type { CallContext, Interceptor, PeerCertificate, RawCall, Session } from "./context.ts";
export { Router } from "./router.ts";
