export { bytesFieldFrame, decodeMessage, type Frame, messageFrame, tryBytesField } from "./codec.ts";
export type { CallContext, Instant, Interceptor, PeerCertificate, PeerInfo, RawCall, Session } from "./context.ts";
export { type Method, Router, type RouterOptions } from "./router.ts";
export { ERROR_DOMAIN, statusCode } from "./status.ts";
