/**
 * Hands an error that nobody expected to the process, which logs it and goes on. For what has to go on itself: a throw
 * would end more than the bug belongs to.
 */
export function reportBug(error: unknown): void {
  queueMicrotask(() => {
    throw error;
  });
}
