export { type Ending, type EndOfProcesses, endProcesses, followToEnd, HANG_UP, KILL, TERMINATE } from "./ends.ts";
export { type Command, CommandStarter, type CommandStarterParts } from "./command-start.ts";
export { type InheritedEnvironment, SessionEnvironment } from "./environment.ts";
export { commandFaults, type GivenCommand } from "./command-faults.ts";
export { resolveUser, userName, userSyntaxProblem } from "./users.ts";
export {
  type DutiesEnd,
  type DutiesThaw,
  type FreezeReport,
  type FreezeRequest,
  notFrozen,
  SessionFreeze,
} from "./freeze.ts";
