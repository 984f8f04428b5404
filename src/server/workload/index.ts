export type { WorkloadLimits } from "./limits.ts";
export { WorkloadServer, type WorkloadServerOptions } from "./server.ts";
export type { DeclareIdle } from "./service.ts";
