export type { ExecCommand, ExecResult } from "./command.ts";
export { ExecProcess, type WebStreams } from "./process.ts";
export { type RunResult, runToEnd } from "./run.ts";
