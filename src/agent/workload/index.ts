export { KILLED_FROZEN } from "./end-in-words.ts";
export { startFailureStatus, Workload } from "./workload.ts";
