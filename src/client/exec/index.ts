export type { ExecCommand, ExecResult } from "./command.ts";
export { ExecProcess } from "./process.ts";
export { type RunResult, runToEnd } from "./run.ts";
