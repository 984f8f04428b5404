export { copy, parseOrder } from "./copy.ts";
export { isReason, statIfThere } from "./guest-paths.ts";
export { parseChown } from "./owners.ts";
export { CopyReport } from "./report.ts";
