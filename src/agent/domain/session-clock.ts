import { reportInternalError } from "./internal-error.ts";
import type { Clock, Timers } from "./ports/system.ts";

interface SessionTimer {
  readonly task: () => void;
  /** Session time at which the task is due. */
  readonly dueMs: number;
  /** Cancels the event loop's timer on which this session timer is based. */
  cancel: () => void;
}

/** A clock that stops while the session is frozen. Without it, all timeouts of commands could expire at the thaw. */
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

  /** Milliseconds since an arbitrary start, without the time in which the session was frozen. */
  nowMs(): number {
    return (this.#frozenSinceMs ?? this.#clock.monotonicMs()) - this.#frozenMs;
  }

  /** Runs the task once after `delayMs` of session time, unless the returned function is called before. */
  after(delayMs: number, task: () => void): () => void {
    const timer: SessionTimer = { task, dueMs: this.nowMs() + delayMs, cancel: () => {} };
    this.#pending.add(timer);
    if (this.#frozenSinceMs === undefined) this.#arm(timer);
    return () => {
      this.#pending.delete(timer);
      timer.cancel();
    };
  }

  /** Stops the session time and the timers of all pending tasks. */
  freeze(): void {
    if (this.#frozenSinceMs !== undefined) return;
    this.#frozenSinceMs = this.#clock.monotonicMs();
    for (const timer of this.#pending) timer.cancel();
  }

  /** Continues the session time, and starts the timers of all pending tasks again. */
  thaw(): void {
    if (this.#frozenSinceMs === undefined) return;
    this.#frozenMs += this.#clock.monotonicMs() - this.#frozenSinceMs;
    this.#frozenSinceMs = undefined;
    for (const timer of this.#pending) this.#arm(timer);
  }

  /**
   * Starts the event loop's timer for a session timer. When it fires, runs the task of this session timer. Also runs
   * the tasks of other session timers that are due, because an internal error may have prevented their callbacks. An
   * error in one task is reported and does not affect the others.
   */
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
          reportInternalError(error);
        }
      }
    });
  }
}
