export { Health, type HealthParts, type HealthReport, type Readiness } from "./health.ts";
