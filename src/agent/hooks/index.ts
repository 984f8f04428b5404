export { type HookKind, Hooks, type HooksParts } from "./hooks.ts";
