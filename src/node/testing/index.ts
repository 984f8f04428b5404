export type {
  HooksSpec,
  HookSpec,
  KeepOutputSpec,
  ProcessOutputSpec,
  ProcessSpec,
  ReadyCommandSpec,
} from "../client/index.ts";
export { type TestAgentCode, TestAgentError } from "./errors.ts";
export { startTestAgent, type TestAgent, type TestAgentOptions } from "./start.ts";
export type { AgentEnd } from "./agent-process.ts";
