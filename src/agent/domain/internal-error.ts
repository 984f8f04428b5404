/**
 * Reports an unexpected error as an uncaught exception, which the process logs. Used where throwing the error would end
 * more than the failed operation.
 */
export function reportInternalError(error: unknown): void {
  queueMicrotask(() => {
    throw error;
  });
}
