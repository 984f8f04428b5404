export { Http2Connection } from "./connection.ts";
export type { Fields, SecretField } from "./hpack.ts";
export { type Http2Limits } from "./limits.ts";
export { type ClientRequest, MemoryClient } from "./memory-client.ts";
export { ThrottleQueue, ThrottledInput } from "./throttled-input.ts";
export { ErrorCode } from "./protocol.ts";
export type { RequestFields } from "./request-fields.ts";
export type { Http2Stream, StreamConsumer } from "./stream.ts";
