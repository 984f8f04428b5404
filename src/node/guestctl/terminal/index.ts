export { runAttached } from "./attach.ts";
export { eventTeller, keptCommand, openKept } from "./kept.ts";
export { ESCAPE_OPTION, parseEscapeChar } from "./keyboard.ts";
export { takeUp } from "./take-up.ts";
export { FORCED, terminalOf } from "./terminal.ts";
