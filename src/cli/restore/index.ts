export { DUTIES_OPTIONS, dutiesOptions } from "./options.ts";
export { asText, dutiesLines, hookLine, readyLine, type ReportLine } from "./report.ts";
