export { type FileSystemUsage, Usage, type UsageReport } from "./usage.ts";
