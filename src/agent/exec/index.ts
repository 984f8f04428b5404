export { Exec } from "./exec.ts";
export { WorkloadOutput } from "./workload-output.ts";
export type { ExecOutput } from "./exec-call.ts";
export type { KeptCall, KeptStarted } from "./attached-call.ts";
export type { ExecResult } from "./command.ts";
export type { KeptCommandState } from "./kept-command.ts";
export type { OutputStream, WhenFull } from "./output-log.ts";
export {
  type AttachRequest,
  type CommandInput,
  type ExecInput,
  ExecInputOrder,
  type ExecRequest,
  type KeepRequest,
} from "./frames.ts";
