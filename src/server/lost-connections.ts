import type { Server } from "node:net";
import type { Clock, Log, WatchArrivals } from "../domain/index.ts";

/** A line for each connection would be a flood of them. */
const SILENCE_MS = 10_000;

/** `_handle` is Node's only way to the descriptor that a server listens on; without it there are no lines. */
type Listening = Server & { readonly _handle?: { readonly fd?: number } | null };

/** Who tells of it. */
export interface LostConnections {
  readonly watch: WatchArrivals | undefined;
  readonly listener: string;
  readonly log: Log;
  readonly clock: Clock;
}

/**
 * Logs `accept_failed` when connections come while no descriptor is left: libuv accepts them then with one that it keeps for
 * that, closes them at once, and tells nobody. To be called once the server listens; returns what ends the watch, without
 * which the socket would stay open.
 */
export function logLostConnections(server: Server, { watch, listener, log, clock }: LostConnections): () => void {
  const fd = (server as Listening)._handle?.fd;
  if (watch === undefined || fd === undefined || fd < 0) return () => {};
  let silentUntilMs = Number.NEGATIVE_INFINITY;
  return watch(fd, (errno) => {
    const nowMs = clock.monotonicMs();
    if (nowMs < silentUntilMs) return;
    silentUntilMs = nowMs + SILENCE_MS;
    log.warn("accept_failed", { listener, errno });
  });
}
