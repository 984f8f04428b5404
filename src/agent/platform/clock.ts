import { afterArrivals, type Clock, TIMER_LIMIT_MS, type Timers } from "../domain/index.ts";
import type { Addon } from "../native/index.ts";

export function guestClock(addon: Addon): Clock {
  return {
    wallNs: () => addon.realtimeNs(),
    // performance.now() is not used, because it would load much more code.
    monotonicMs: () => Number(process.hrtime.bigint()) / 1e6,
  };
}

/**
 * Timers of Node. Delays are limited to TIMER_LIMIT_MS (24 days), because Node runs a timer with a longer delay at
 * once.
 */
export const nodeTimers: Timers = {
  after: (delayMs, task) => afterArrivals(Math.min(delayMs, TIMER_LIMIT_MS), task),
};
