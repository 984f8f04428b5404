export type { HookOutcome } from "./hook-run.ts";
export { type HookKind, Hooks, type HooksParts, type StartHook } from "./hooks.ts";
