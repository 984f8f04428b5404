export { IdleDeclarations } from "./idle-declarations.ts";
export { WorkloadServer } from "./server.ts";
