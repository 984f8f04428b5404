export { type Check, checkGuest } from "./checks.ts";
export { describeChecks } from "./table.ts";
