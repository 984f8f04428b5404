export { BufferPool } from "./buffer-pool.ts";
export { KeptPipes } from "./kept-pipes.ts";
export { FdSink } from "./sink.ts";
export { FdSource, type StartsSettled, type StreamKind } from "./source.ts";
