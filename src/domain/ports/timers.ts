/** Timers on the clock that is never stepped. */
export interface Timers {
  /** Runs the task once, `delayMs` from now, unless the returned function is called before. */
  after(delayMs: number, task: () => void): () => void;
}
