export { addressOf } from "./access.ts";
export { demandAgent } from "./agent-version.ts";
export {
  afterColon,
  agentEnded,
  consoleTail,
  ending,
  isOff,
  reasonOfEnd,
  whileUp,
  WHOLE_CONSOLE_LINES,
} from "./ending.ts";
export {
  awaken,
  type Awakening,
  CALL_MS,
  type Freeze,
  freezeText,
  hookText,
  quiesce,
  reached,
  type Warning,
} from "./guest.ts";
export { agentEnvironment, type AgentSource, type GuestFile, mounts, PROCESS_SPEC_PATH } from "./injection.ts";
export { isUnknownOutcome, OPERATION_TAG } from "./instances.ts";
export {
  type Entry,
  type HookOutcome,
  Journal,
  type JournalEntry,
  loadSqlite,
  type Phase,
  type Publication,
  ready,
  type SuspendReport,
  type SandboxEntry,
  type SnapshotEntry,
} from "./journal.ts";
export { bundleOf, type RestoreChoices, type SnapshotKeys } from "./keys.ts";
export {
  AGENT_VOLUME_TAG,
  JOURNAL_TAG,
  type Needs,
  NODE_TAG,
  nodeOf,
  type NodeOptions,
  type NodeParts,
  parentOf,
} from "./node.ts";
export { polled } from "./polled.ts";
export type { Step } from "./turns.ts";
