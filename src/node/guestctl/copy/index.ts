export { copy, parseOrder } from "./copy.ts";
export { ALL_LEVELS, isReason, statIfThere } from "./guest-paths.ts";
export { CopyReport } from "./report.ts";
