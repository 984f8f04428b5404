import { reportBug } from "./bug.ts";
import type { Clock, Timers } from "./ports/system.ts";

interface SessionTimer {
  readonly task: () => void;
  /** The session's time at which it is due. */
  readonly dueMs: number;
  /** Cancels the real timer behind it. */
  cancel: () => void;
}

/**
 * The session's own time. It stops while the session is frozen: else all timeouts of commands would be over at the
 * thaw.
 */
export class SessionClock {
  readonly #clock: Pick<Clock, "monotonicMs">;
  readonly #timers: Timers;
  readonly #pending: Set<SessionTimer> = new Set();
  #frozenMs = 0;
  #frozenSinceMs: number | undefined;

  constructor(clock: Pick<Clock, "monotonicMs">, timers: Timers) {
    this.#clock = clock;
    this.#timers = timers;
  }

  /** Milliseconds from an arbitrary start, without those in which the session was frozen. */
  nowMs(): number {
    return (this.#frozenSinceMs ?? this.#clock.monotonicMs()) - this.#frozenMs;
  }

  /** Runs the task once, after so much of the session's time, unless the returned function is called before. */
  after(delayMs: number, task: () => void): () => void {
    const timer: SessionTimer = { task, dueMs: this.nowMs() + delayMs, cancel: () => {} };
    this.#pending.add(timer);
    if (this.#frozenSinceMs === undefined) this.#arm(timer);
    return () => {
      this.#pending.delete(timer);
      timer.cancel();
    };
  }

  /** Stops the session's time. */
  freeze(): void {
    if (this.#frozenSinceMs !== undefined) return;
    this.#frozenSinceMs = this.#clock.monotonicMs();
    for (const timer of this.#pending) timer.cancel();
  }

  /** Lets the session's time go on. */
  thaw(): void {
    if (this.#frozenSinceMs === undefined) return;
    this.#frozenMs += this.#clock.monotonicMs() - this.#frozenSinceMs;
    this.#frozenSinceMs = undefined;
    for (const timer of this.#pending) this.#arm(timer);
  }

  /** Runs others that are due, too: a bug in between may have kept theirs from running, and its own must not end them. */
  #arm(timer: SessionTimer): void {
    timer.cancel = this.#timers.after(Math.max(0, timer.dueMs - this.nowMs()), () => {
      const nowMs = this.nowMs();
      for (const due of this.#pending) {
        if (due !== timer && due.dueMs >= nowMs) continue;
        this.#pending.delete(due);
        due.cancel();
        try {
          due.task();
        } catch (error) {
          reportBug(error);
        }
      }
    });
  }
}
