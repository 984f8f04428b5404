export { COMMANDS } from "./commands.ts";
