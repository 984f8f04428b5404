export { type CommandProcess, type ListedProcess, ProcessList } from "./processes.ts";
