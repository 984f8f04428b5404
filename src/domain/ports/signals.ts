/** Signals that the agent itself receives. */
export interface Signals {
  /** Calls `listener` with the number of every signal from now on, in order. One listener. */
  listen(listener: (signal: number) => void): void;
  /** Stops listening; for the agent's own end. */
  close(): void;
}
