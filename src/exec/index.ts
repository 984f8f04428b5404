export { Exec } from "./exec.ts";
export type { ExecResult, OutputStream } from "./session.ts";
export { checkExecRequest, type ExecInput, ExecInputOrder, type ExecRequest } from "./frames.ts";
