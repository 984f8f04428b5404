export type { HookOutcome, StartHook } from "./hook-run.ts";
export { type HookKind, Hooks, type HooksParts } from "./hooks.ts";
