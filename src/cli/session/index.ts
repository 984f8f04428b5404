export { attach, type Session } from "./attach.ts";
export { parseEscapeChar } from "./escape.ts";
export { attachAsEvents } from "./events.ts";
export { terminalOf } from "./local-terminal.ts";
