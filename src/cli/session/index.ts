export { attach, type Session } from "./attach.ts";
export { attachAsEvents } from "./events.ts";
export { terminalOf } from "./raw-terminal.ts";
