export { NativeProcesses, openFilesLimitForChildren } from "./processes/index.ts";
export { BufferPool } from "./streams/index.ts";
