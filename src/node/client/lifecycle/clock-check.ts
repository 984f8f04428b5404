import type { CallOptions } from "../grpc/channel.ts";
import type { TimeLimit } from "../time-limit.ts";
import type { Health } from "./messages.ts";

/** Number of readings of the guest's clock. Only the quickest reading is used; its uncertainty is half of its duration. */
const CLOCK_CHECKS = 3;

/** Result of comparing the guest's clock with this machine's clock. */
export interface ClockCheck {
  readonly health: Health;
  /** Guest time minus host time, in milliseconds. */
  readonly clockErrorMs: number;
  /**
   * The smallest possible error of the guest's clock, in milliseconds: the absolute value of `clockErrorMs` less its
   * uncertainty. If this process gets little CPU time, it reads every answer late, and `clockErrorMs` becomes large
   * even if the clock is right.
   */
  readonly certainErrorMs: number;
}

/**
 * Calls Health several times. Returns the last answer, and the errors of the guest's clock, computed from the answer
 * with the shortest round trip. The errors are NaN if the agent sends no time.
 */
export async function checkClock(
  client: { health(options: CallOptions): Promise<Health> },
  { limit, signal }: { readonly limit: TimeLimit; readonly signal: AbortSignal | undefined },
): Promise<ClockCheck> {
  let quickestMs = Number.POSITIVE_INFINITY;
  let clockErrorMs = Number.NaN;
  for (let check = 1; ; check++) {
    const askedMs = Date.now();
    const began = performance.now();
    const health = await client.health({ signal, requestTimeoutMs: limit.left() });
    const tookMs = performance.now() - began;
    if (tookMs < quickestMs && health.guestTime !== undefined) {
      quickestMs = tookMs;
      clockErrorMs = health.guestTime.getTime() - (askedMs + tookMs / 2);
    }
    if (check === CLOCK_CHECKS) {
      const certainErrorMs = Math.max(0, Math.abs(clockErrorMs) - quickestMs / 2);
      return { health, clockErrorMs, certainErrorMs };
    }
  }
}
