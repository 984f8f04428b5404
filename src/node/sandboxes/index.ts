export { type SandboxCode, SandboxError } from "./errors.ts";
export type { Awakening, Freeze, Warning } from "./guest.ts";
export { connectHypeman, type HypemanOptions } from "./hypeman.ts";
export type { AgentSource } from "./injection.ts";
export type { ImageInfo } from "./images.ts";
export type { PublishOptions } from "./ingress.ts";
export type { HookOutcome, Phase, Publication, Rest, SnapshotEntry as SnapshotInfo } from "./journal.ts";
export type { SnapshotKeys } from "./keys.ts";
export type { NodeOptions, Step } from "./node.ts";
export { noSandbox, type Reach } from "./reach.ts";
export { type NodeStatus, type SandboxInfo, Sandboxes } from "./sandboxes.ts";
export type { IdleAction, NetworkSpec, SandboxSpec, Tags } from "./spec.ts";
export type { Stopping } from "./stop.ts";
export type { ResumeOptions, SuspendOptions } from "./suspend.ts";
export {
  type Capacity,
  type DaemonFacts,
  type Image,
  type Ingress,
  type IngressRule,
  type Instance,
  type InstanceParts,
  type InstanceState,
  type Snapshot,
  type Substrate,
  USUAL_LISTEN_PORT,
  type Volume,
  type VolumeMount,
} from "./substrate.ts";
export type { SweepOptions, SweepReport } from "./sweep.ts";
export type { Verdict, WatchEvent, WatchOptions } from "./watch.ts";
