import { stat } from "node:fs";

/** Threads that file calls share. */
export const SHARED_THREADS = 3;
/** More threads: for syncs, for probes, and in place of shared ones whose operation is late. */
export const EXTRA_THREADS = 16;
/** Extra threads that only probes get. */
export const PROBE_THREADS = 1;
/** All threads of libuv, which starts no more later: one stays free for others (user database, credentials). */
const POOL_THREADS = SHARED_THREADS + EXTRA_THREADS + 1;
/**
 * Starts all of libuv's threads now: later it would end the process if the guest may have no more processes. Children
 * get the environment from before.
 */
export function startThreads(): void {
  process.env["UV_THREADPOOL_SIZE"] = String(POOL_THREADS);
  stat("/", () => {});
}
