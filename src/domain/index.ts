export { AgentError, type ErrorMetadata, invalidField, type Reason, type StatusName } from "./errors.ts";
export * from "./limits.ts";
export * from "./ports/index.ts";
export type { HookSpec, HooksSpec, ProcessSpec, ReadyCommandSpec } from "./specs.ts";
