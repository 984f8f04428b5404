import type { Http2Session } from "node:http2";

/** Sends PINGs for as long as the session lives; calls `dead` when one is not answered in time. */
export function keepAlive(session: Http2Session, intervalMs: number, timeoutMs: number, dead: () => void): void {
  let overdue: NodeJS.Timeout | undefined;
  const pings = setInterval(() => {
    if (session.destroyed || overdue !== undefined) return;
    overdue = setTimeout(dead, timeoutMs);
    overdue.unref();
    session.ping(() => {
      clearTimeout(overdue);
      overdue = undefined;
    });
  }, intervalMs);
  pings.unref();
  session.once("close", () => {
    clearInterval(pings);
    clearTimeout(overdue);
  });
}
