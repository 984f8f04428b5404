import { Budget, type Clock, type Log } from "../domain/index.ts";

/** Number of uncaught errors that are tolerated in a short time. More are assumed to occur in a loop. */
const ERRORS_BURST = 50;
/** Number of further errors that are tolerated for each second that has passed. */
const ERRORS_PER_SECOND = 1;

/**
 * Makes the process survive uncaught errors and log their stack, because the end of the agent would also end the
 * workload. If there are more errors than the limits permit, calls `leave`.
 */
export function surviveUncaughtErrors(log: Log, clock: Clock, leave: () => void): void {
  const budget = new Budget(ERRORS_BURST, ERRORS_PER_SECOND, clock.monotonicMs());
  process.on("uncaughtException", (error, origin) => {
    log.error("internal_error", {
      origin,
      error: error instanceof Error ? (error.stack ?? error.message) : "no error",
    });
    if (!budget.spend(clock.monotonicMs())) leave();
  });
}
