export { copy } from "./copy.ts";
export { parseOrder } from "./locations.ts";
export { CopyReport } from "./report.ts";
