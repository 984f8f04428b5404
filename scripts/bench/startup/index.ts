export { coldStartupRows } from "./cold.ts";
export { startupRows } from "./rows.ts";
