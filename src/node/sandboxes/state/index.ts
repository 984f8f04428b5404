export { addressOf } from "./access.ts";
export type { AgentSource } from "./agent-volumes.ts";
export {
  afterColon,
  agentEnded,
  consoleTail,
  ending,
  isOff,
  linesBeforeAgent,
  reasonOfEnd,
  reasonOfRefusal,
  whileUp,
  WHOLE_CONSOLE_LINES,
} from "./ending.ts";
export { bounded, Gate, type Leave } from "./gate.ts";
export {
  awaken,
  type Awakening,
  CALL_MS,
  callLimits,
  type Freeze,
  freezeLeftMs,
  freezeText,
  freezeTimeMs,
  hookText,
  quiesce,
  reached,
} from "./guest.ts";
export { compareKeys, requireAgent, requireFeature } from "./requirements.ts";
export { acceptedClient, credentialMixtures, freshAccepted, handOver } from "./handover.ts";
export {
  agentEnvironment,
  credentialDirectories,
  HOOKS_SPEC_PATH,
  mounts,
  nextOf,
  PROCESS_SPEC_PATH,
} from "./injection.ts";
export { isRunning, isUnknownOutcome, OPERATION_TAG } from "./instances.ts";
export {
  type Entry,
  type HookOutcome,
  Journal,
  type JournalEntry,
  loadSqlite,
  type Phase,
  type Publication,
  type RanUnfrozen,
  ready,
  type SandboxEntry,
  type SnapshotEntry,
  type SuspendReport,
  taken,
} from "./journal.ts";
export { bundleOf, type RestoreChoices, type SnapshotKeys } from "./keys.ts";
export {
  AGENT_VOLUME_TAG,
  type DaemonParts,
  type InstanceParts,
  JOURNAL_TAG,
  NODE_TAG,
  checkNumbers,
  nodeOf,
  type NodeOptions,
  type NodeParts,
  parentOf,
} from "./node.ts";
export { panicIn } from "./panic.ts";
export { polled } from "./polled.ts";
export type { Step } from "./operation-queue.ts";
export { ranUnfrozen, suspensionWarnings, unfrozenBecause, unfrozenWarnings, type Warning } from "./warnings.ts";
