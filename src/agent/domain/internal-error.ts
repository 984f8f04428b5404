/**
 * Reports an unexpected error as an uncaught exception of the process, which logs it. Used where throwing would end
 * more than the failed operation.
 */
export function reportInternalError(error: unknown): void {
  queueMicrotask(() => {
    throw error;
  });
}
