export { copy, parseOrder } from "./copy.ts";
export { isReason, statIfThere } from "./guest-paths.ts";
export { ownersFor, parseChown, guestAccounts } from "./owners.ts";
export { CopyReport } from "./report.ts";
