export {
  type Ended,
  endProcesses,
  type EndOfProcesses,
  type Ending,
  followToEnd,
  HANG_UP,
  KILL,
  TERMINATE,
} from "./ends.ts";
