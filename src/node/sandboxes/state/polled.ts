import { setTimeout as pause } from "node:timers/promises";
import { currentSignal, throwIfAborted } from "../substrate/index.ts";

/**
 * Polls until `isEnough` returns true for a result, until another check would exceed the time limit, or until the
 * signal is aborted. Resolves with the last result. Rejects with SandboxError once the current operation is aborted.
 */
export async function polled<Seen>(
  poll: () => Promise<Seen>,
  isEnough: (seen: Seen) => boolean,
  how: { readonly pauseMs: number; readonly limitMs?: number; readonly signal?: AbortSignal | undefined },
): Promise<Seen> {
  const { pauseMs, limitMs = Number.POSITIVE_INFINITY, signal } = how;
  const untilMs = performance.now() + limitMs;
  for (;;) {
    const seen = await poll();
    if (isEnough(seen) || signal?.aborted === true || performance.now() + pauseMs >= untilMs) return seen;
    throwIfAborted();
    const either = currentSignal(signal);
    await pause(pauseMs, undefined, either && { signal: either }).catch(() => undefined);
    throwIfAborted();
  }
}
