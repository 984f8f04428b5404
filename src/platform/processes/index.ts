export { cgroupFacts } from "./cgroup-facts.ts";
export { Cgroups } from "./cgroups.ts";
export { openFilesLimitForChildren } from "./open-files-limit.ts";
export { NativeProcesses } from "./processes.ts";
