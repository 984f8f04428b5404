export { BufferPool } from "./buffer-pool.ts";
export { FdSink } from "./sink.ts";
export { FdSource, type StartsSettled, type StreamKind } from "./source.ts";
