/** A process and everything that descends from it. Valid only while the leader is not reaped: its id names the tree. */
export interface ProcessTree {
  /** Sends a signal to every member, once. */
  signal(signal: number): void;
  /** SIGKILL for every member, also those that appear meanwhile; resolves when none is left alive. */
  kill(): Promise<void>;
  /** The out-of-memory killer struck a member. False where nobody counts. */
  oomKilled(): boolean;
  /** The leader has been reaped: whatever is left of the tree is on its own now. */
  release(): void;
}
