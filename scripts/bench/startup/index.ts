export { coldStartupRows } from "./cold.ts";
export { type StartupPlan, startupRows } from "./rows.ts";
