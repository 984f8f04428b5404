import type { Clock, Timers } from "../domain/index.ts";
import type { Addon } from "../native/index.ts";

/** The guest's clocks. */
export function guestClock(addon: Addon): Clock {
  return {
    wallNs: () => addon.realtimeNs(),
    // Not performance.now(), which loads far more than a clock.
    monotonicMs: () => Number(process.hrtime.bigint()) / 1e6,
  };
}

/** Node's own timers. */
export const nodeTimers: Timers = {
  after: (delayMs, task) => {
    const timer = setTimeout(task, delayMs);
    return () => clearTimeout(timer);
  },
};
