export { noSandbox, type Reach } from "./reach.ts";
export type { RotateAllOptions, RotationProgress, RotationReport } from "./rotation.ts";
export { type NodeStatus, Sandboxes, type SandboxInfo } from "./sandboxes.ts";
export type { SweepOptions, SweepProgress } from "./sweep.ts";
export type { SweepFailure, SweepReport } from "./sweep-report.ts";
export type { Verdict } from "./verdict.ts";
export type { WatchOptions } from "./watch.ts";
export type { WatchEvent } from "./watcher.ts";
export type { SandboxUsage, UsageReader } from "./usage.ts";
