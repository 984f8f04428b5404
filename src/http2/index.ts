export { Http2Connection, type ConnectionEvents, type ConnectionLimits } from "./connection.ts";
export type { Fields } from "./hpack.ts";
export { DEFAULT_HTTP2_LIMITS, type Http2Limits } from "./limits.ts";
export { ErrorCode } from "./protocol.ts";
export type { RequestFields } from "./request-fields.ts";
export type { Http2Stream, StreamConsumer } from "./stream.ts";
