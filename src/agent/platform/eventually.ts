import { setTimeout as delay } from "node:timers/promises";
import { type SessionClock, yieldToEventLoop } from "../domain/index.ts";

const LONGEST_PAUSE_MS = 50;

/** The clock for a limit: real time, or session time, which stops while the session is frozen. */
export type TimeOf = Pick<SessionClock, "nowMs">;

const REAL_TIME: TimeOf = { nowMs: () => performance.now() };

/** Options of `eventually()`: which clock limits the polling, and how long to pause between two polls. */
export interface Polling {
  /** Clock for the limit. Default: real time. */
  readonly time?: TimeOf | undefined;
  /** Returns the next pause; 0 means the next tick of the event loop. Default: 1 ms, doubled each time up to 50 ms. */
  readonly pauseMs?: (spentMs: number, lastMs: number) => number;
}

/** Polls until `done` returns true. Returns false on timeout. */
export async function eventually(
  limitMs: number,
  done: () => boolean | Promise<boolean>,
  { time = REAL_TIME, pauseMs = (_, lastMs) => Math.min(2 * lastMs || 1, LONGEST_PAUSE_MS) }: Polling = {},
): Promise<boolean> {
  const beganMs = time.nowMs();
  for (let lastMs = 0; ;) {
    if (await done()) return true;
    const spentMs = time.nowMs() - beganMs;
    if (spentMs >= limitMs) return false;
    lastMs = pauseMs(spentMs, lastMs);
    if (lastMs === 0) await yieldToEventLoop();
    else await delay(Math.min(lastMs, limitMs - spentMs));
  }
}
