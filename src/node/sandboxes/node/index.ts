export { demandAgent } from "./agent-version.ts";
export { agentEnded, consoleTail, ending, isOff, reasonOfEnd, whileUp, WHOLE_CONSOLE_LINES } from "./ending.ts";
export {
  awaken,
  type Awakening,
  CALL_MS,
  type Freeze,
  freezeText,
  hookText,
  quiesce,
  retried,
  type Warning,
} from "./guest.ts";
export { agentEnvironment, type AgentSource, type GuestFile, mounts, PROCESS_SPEC_PATH } from "./injection.ts";
export {
  type Entry,
  type HookOutcome,
  Journal,
  type JournalEntry,
  loadSqlite,
  type Phase,
  type Publication,
  type Rest,
  type SandboxEntry,
  type SnapshotEntry,
} from "./journal.ts";
export { bundleOf, type RestoreChoices, type SnapshotKeys } from "./keys.ts";
export {
  AGENT_VOLUME_TAG,
  isUnknownOutcome,
  JOURNAL_TAG,
  Node,
  NODE_TAG,
  type NodeOptions,
  OPERATION_TAG,
  parentOf,
  ready,
  type Step,
} from "./node.ts";
