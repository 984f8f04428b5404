export { Exec, type ExecParts } from "./exec.ts";
export type { ExecOutput, ExecResult, OutputStream } from "./session.ts";
export { checkExecRequest, type ExecInput, ExecInputOrder, type ExecRequest } from "./frames.ts";
