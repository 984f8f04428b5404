export { exitObject, runAttached } from "./attach.ts";
export { eventTeller, keptCommand, openKept, takeUp } from "./kept.ts";
export { ESCAPE_OPTION, parseEscapeChar } from "./keyboard.ts";
export { FORCED, terminalOf } from "./terminal.ts";
