import { type Clock, TIMER_LIMIT_MS, type Timers } from "../domain/index.ts";
import type { Addon } from "../native/index.ts";

/** The guest's clocks. */
export function guestClock(addon: Addon): Clock {
  return {
    wallNs: () => addon.realtimeNs(),
    // Not performance.now(), which loads far more than a clock.
    monotonicMs: () => Number(process.hrtime.bigint()) / 1e6,
  };
}

/** Node's own timers. None takes longer than TIMER_LIMIT_MS, 24 days: Node runs the task of a longer one at once. */
export const nodeTimers: Timers = {
  after: (delayMs, task) => {
    const timer = setTimeout(task, Math.min(delayMs, TIMER_LIMIT_MS));
    return () => clearTimeout(timer);
  },
};
