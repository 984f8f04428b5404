export { startFailureStatus, Workload } from "./workload.ts";
