export { type Answer, type Command, type CommandEntry, defineCommand, type Host, type Parsed } from "./command-line.ts";
export { commandElsewhere, optionElsewhere, SANDBOX_VERBS } from "./elsewhere.ts";
export {
  CliError,
  signalStatus,
  STATUS_FAILED,
  STATUS_NOT_AS_INTENDED,
  STATUS_RSH_FAILED,
  STATUS_TIMED_OUT,
  UsageError,
} from "./errors.ts";
export { failureObject, reportFailure } from "./failure.ts";
export { optionsText } from "./help.ts";
export { type Completes, type Option, parsed } from "./option.ts";
export {
  hookWords,
  inSnakeCase,
  jsonLine,
  printable,
  quoted,
  type ReportLine,
  reportText,
  sizeWords,
  tableText,
  unreadyReason,
  writeAll,
} from "./output.ts";
export {
  absoluteForm,
  guestPath,
  noNames,
  oneName,
  parseCount,
  parseDurationMs,
  parseMode,
  parseSignal,
  parseSizeBytes,
  parseVariables,
  parseWaitMs,
  parseWord,
  portOrPath,
  readVariables,
  setting,
} from "./values.ts";
export { inFlags } from "./words.ts";
