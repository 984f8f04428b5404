export type { ExecCommand, ExecResult } from "./command.ts";
export { ExecProcess, type WebStreams } from "./process.ts";
export { type RunOptions, type RunResult, runToEnd } from "./run.ts";
export type { SignalName } from "./signals.ts";
