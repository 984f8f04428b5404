export type { Call } from "./call.ts";
export { bytesFieldFrame, decodeMessage, type Frame, messageFrame, timestamp, tryBytesField } from "./codec.ts";
export { type Interceptor, Router } from "./router.ts";
