export { type SandboxCode, SandboxError, sandboxError, statusOf } from "./errors.ts";
export { connectHypeman, type HypemanOptions } from "./hypeman.ts";
export {
  checkName,
  checkNodeId,
  checkSpec,
  type IdleAction,
  type NetworkSpec,
  randomName,
  type SandboxSpec,
  sizeBytesOf,
  type Tags,
} from "./spec.ts";
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
