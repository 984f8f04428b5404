export { startFailureStatus, Workload, type WorkloadParts } from "./workload.ts";
