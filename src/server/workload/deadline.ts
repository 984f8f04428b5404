import type { Connection } from "../connections.ts";

/** Drops the connection after `delayMs` unless the timer is cleared before. */
export function dropAfter(connection: Connection, delayMs: number, problem: string): NodeJS.Timeout {
  return setTimeout(() => connection.drop(`${problem} within ${delayMs} ms`), delayMs).unref();
}
