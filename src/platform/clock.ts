import type { Clock } from "../domain/index.ts";
import type { Addon } from "../native/index.ts";

/** The guest's clocks. */
export function guestClock(addon: Addon): Clock {
  return {
    wallNs: () => addon.realtimeNs(),
    // Not by performance.now(), which loads far more than a clock.
    monotonicMs: () => Number(process.hrtime.bigint()) / 1e6,
  };
}
