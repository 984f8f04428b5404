export type { Call } from "./call.ts";
export {
  bytesFieldFrame,
  decodeMessage,
  FrameWriter,
  type Frame,
  messageFrame,
  timestamp,
  tryBytesField,
} from "./codec.ts";
export { type Interceptor, Router } from "./router.ts";
export { PREFIX_BYTES } from "./framing.ts";
