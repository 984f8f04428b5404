/** When to try again. */
export interface Retries {
  /** Pauses between attempts; after the last there is one attempt more. */
  readonly pausesMs: Iterable<number>;
  /** Waits. May reject, and that ends the attempts. */
  readonly pause: (pauseMs: number) => Promise<void>;
  /** When to stop trying, on performance.now(). */
  readonly untilMs: number;
  /** Whether another attempt may succeed after this error. */
  readonly mayPass: (error: unknown) => boolean;
}

/**
 * Tries until an attempt succeeds. Rejects with the error of the last one.
 * @param first an attempt that has already begun
 */
export async function retried<Value>(
  first: Promise<Value>,
  again: () => Promise<Value>,
  { pausesMs, pause, untilMs, mayPass }: Retries,
): Promise<Value> {
  let attempt = first;
  for (const pauseMs of pausesMs) {
    try {
      return await attempt;
    } catch (error) {
      if (!mayPass(error) || performance.now() + pauseMs >= untilMs) throw error;
    }
    await pause(pauseMs);
    attempt = again();
  }
  return attempt;
}
