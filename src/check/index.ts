export type { Check } from "./check.ts";
export { checkGuest } from "./checks.ts";
export { describeChecks } from "./table.ts";
