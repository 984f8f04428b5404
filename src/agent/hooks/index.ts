export { type HookKind, Hooks } from "./hooks.ts";
