import type { ProcessEnd } from "./ports/index.ts";

/** Exit code of an ended process as a shell reports it: 128 + n when signal n ended it. */
export function exitCode(end: ProcessEnd): number {
  return end.kind === "exited" ? end.code : 128 + end.signal;
}
