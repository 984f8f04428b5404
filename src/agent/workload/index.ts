export { KILLED_FROZEN } from "./describe-end.ts";
export { startFailureStatus, Workload } from "./workload.ts";
