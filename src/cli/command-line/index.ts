export { type Command, type CommandParts, defineCommand, type Host, type Parsed } from "./command.ts";
export type { Completes, Option, Options } from "./option.ts";
export type { CommandEntry } from "./table.ts";
