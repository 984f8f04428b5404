import type { Timers } from "../domain/index.ts";

/** Node's own timers. */
export const nodeTimers: Timers = {
  after: (delayMs, task) => {
    const timer = setTimeout(task, delayMs);
    return () => clearTimeout(timer);
  },
};
