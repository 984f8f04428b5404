import { type Command, defineCommand } from "../command-line.ts";
import { CONNECTION_OPTIONS, connector } from "../connection.ts";
import { STATUS_FAILED, STATUS_NOT_READY, UsageError } from "../errors.ts";
import { parseCount, parseWaitMs } from "../values.ts";
import { watchLive } from "../watch/live.ts";
import { type Sample, watchAsLines } from "../watch/watch.ts";

const DEFAULT_INTERVAL_MS = 1_000;
/** Health is cheap, but a guest has its own work to do. */
const LEAST_INTERVAL_MS = 100;

export const watch: Command = defineCommand({
  usage: ["watch [options]"],
  about: `Shows how an agent is, again and again: whether it answers, readiness, last user activity, the idle declaration, its
clock against this host's, and what has changed. A lost connection is dialled anew, as after a restore. Asking is no
user activity. The key q leaves, and Ctrl-Z suspends.`,
  options: {
    interval: { type: "string", argument: "DURATION", help: "time between two looks (default 1s, at least 100ms)" },
    count: { type: "string", argument: "N", help: "leave after that many looks" },
    ...CONNECTION_OPTIONS,
  },
  notes: `With --json, and where standard input or output is no terminal, one object a line for each look: "time" and "state";
up with "round_trip_ms", "clock_error_ms" (guest minus host), "agent_version" and "health" (as of "health"), lost with
"error".`,
  statuses: "0 left by q; with --count 0 ready, 1 not ready, 125 no answer at the last look; 125 when guestctl fails.",
  examples: ["watch", "watch --interval 200ms --json | jq --unbuffered .health.ready", "watch --count 1"],
  async run({ values }, host) {
    const intervalMs = parseWaitMs(values.interval, "--interval") ?? DEFAULT_INTERVAL_MS;
    if (intervalMs < LEAST_INTERVAL_MS) throw new UsageError(`--interval wants ${LEAST_INTERVAL_MS}ms at least`);
    const count = parseCount(values.count, "--count", 1);
    const isLive = values.json !== true && host.stdin.isTTY && host.stdout.isTTY;
    const run = isLive ? watchLive : watchAsLines;
    const last = await run(await connector(values, host), { intervalMs, count }, host);
    return count === undefined ? 0 : statusOf(last);
  },
});

function statusOf(last: Sample | undefined): number {
  if (last === undefined) return 0;
  if ("error" in last) return STATUS_FAILED;
  return last.health.ready ? 0 : STATUS_NOT_READY;
}
