export { Health, type HealthParts, type HealthReport, type Readiness } from "./health.ts";
export { ReadinessLoop, type ReadinessParts } from "./readiness.ts";
