export { type StartupPlan, startupRows } from "./rows.ts";
