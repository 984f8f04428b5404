export { type Check, checkGuest, describeChecks } from "./checks.ts";
