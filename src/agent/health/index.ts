export { Health, type HealthReport } from "./health.ts";
export { ReadinessLoop } from "./readiness.ts";
export { HealthWatches } from "./watches.ts";
