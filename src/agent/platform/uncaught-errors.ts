import { Budget, type Clock, type Log } from "../domain/index.ts";

/** Number of uncaught errors that are tolerated in a burst, and per second. If there are more, something throws forever. */
const ERRORS_BURST = 50;
const ERRORS_PER_SECOND = 1;

/**
 * From now on the process survives uncaught errors and logs their stack, because the workload must not end with the
 * agent. The call or connection in which an error happened has already failed, as far as it is known. If errors keep
 * coming, calls `leave`.
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
