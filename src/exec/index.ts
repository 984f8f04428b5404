export { Exec, type ExecParts } from "./exec.ts";
export type { ExecOutput, ExecResult, OutputStream } from "./output.ts";
