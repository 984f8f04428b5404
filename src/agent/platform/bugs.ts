import { Budget, type Clock, type Log } from "../domain/index.ts";

/** Bugs that the process survives, at once and a second: more than that come from something that never ends. */
const BUGS_BURST = 50;
const BUGS_PER_SECOND = 1;

/**
 * From now on the process survives what nobody catches, and logs its stack: the workload must not end with it. The call
 * or connection to which it belongs has ended then, where that could be told. Where bugs do not cease, calls `leave`.
 */
export function surviveBugs(log: Log, clock: Clock, leave: () => void): void {
  const bugs = new Budget(BUGS_BURST, BUGS_PER_SECOND, clock.monotonicMs());
  process.on("uncaughtException", (error, origin) => {
    log.error("bug", { origin, error: error instanceof Error ? (error.stack ?? error.message) : "no error" });
    if (!bugs.spend(clock.monotonicMs())) leave();
  });
}
