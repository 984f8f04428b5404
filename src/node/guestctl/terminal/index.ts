export { exitObject, runAttached } from "./attach.ts";
export { eventReporter, keptCommand, openKept, attachToKept } from "./kept.ts";
export { ESCAPE_OPTION, parseEscapeChar } from "./keyboard.ts";
export { FORCED, terminalOf } from "./terminal.ts";
