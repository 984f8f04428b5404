export { COMMAND_GROUPS, COMMANDS } from "./commands.ts";
