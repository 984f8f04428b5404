/**
 * Reports an unexpected error as an uncaught exception, which the process logs. Used in place of `throw` where an
 * exception would also end other operations than the one that failed.
 */
export function reportInternalError(error: unknown): void {
  queueMicrotask(() => {
    throw error;
  });
}
