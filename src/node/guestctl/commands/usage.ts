import { setTimeout as pause } from "node:timers/promises";
import { GuestUsageSchema } from "../../../shared/gen/svc/guest/v1alpha1/usage_pb.ts";
import {
  connect,
  type GuestClient,
  GuestError,
  type GuestUsage,
  usageMetrics,
  type WatchUsageOptions,
} from "../../client/index.ts";
import {
  type Command,
  defineCommand,
  jsonLine,
  parseDurationMs,
  printable,
  type ReportLine,
  reportText,
  sizeWords,
  UsageError,
  writeAll,
} from "../cli/index.ts";
import { ANSWER_TIMEOUT_MS, CONNECTION_OPTIONS, connector, openClient } from "../target/index.ts";
import { schemaObject } from "./schema.ts";

const US = 1e-6;
const RETRY_PAUSE_MS = 1_000;

export const usage: Command = defineCommand({
  usage: ["usage [options]"],
  about: `Shows what a sandbox uses of its memory, processors, file systems and network, as its kernel counts it. Does not count
as user activity.`,
  options: {
    watch: { short: "w", help: "go on until SIGINT or SIGTERM" },
    interval: { argument: "DURATION", help: "with --watch: from one report to the next, 1s to 24h (default 5s)" },
    metrics: { help: "Prometheus' text form" },
    ...CONNECTION_OPTIONS,
  },
  notes: `With --json, one object a report, the fields of the schema (GuestUsage): counters since boot, and no percentages. What
the guest cannot tell is absent.`,
  statuses: "0 shown, or ended by SIGINT or SIGTERM; 125 failed.",
  examples: ["usage", "usage --watch --interval 1s --json", "usage --metrics"],
  elsewhere: [["--no-stream", "one report is the default"]],
  async run({ values }, host) {
    const intervalMs = parseDurationMs(values.interval, "--interval");
    if (intervalMs !== undefined && values.watch !== true) throw new UsageError("--interval is for --watch");
    if (values.metrics === true && values.json === true) throw new UsageError("give --metrics or --json, not both");
    const textOf = (report: GuestUsage): string =>
      values.metrics === true ? usageMetrics(report) : reportText(linesOf(report));
    if (values.watch !== true) {
      using client = await openClient(values, host);
      const report = await client.usage({ timeoutMs: ANSWER_TIMEOUT_MS });
      return { text: textOf(report), json: schemaObject(GuestUsageSchema, report) };
    }
    const show = async (report: GuestUsage): Promise<void> => {
      const text = values.json === true ? jsonLine(schemaObject(GuestUsageSchema, report)) : `${textOf(report)}\n`;
      await writeAll(host.stdout, text);
    };
    const left = new AbortController();
    for (const signal of ["SIGINT", "SIGTERM"] as const) host.once(signal, () => left.abort());
    const { redial, connect: dial } = await connector(values, host);
    let wasThere = false;
    while (!left.signal.aborted) {
      try {
        await watchOnce(
          redial === undefined ? dial() : connect(await redial()),
          { intervalMs, signal: left.signal },
          async (report) => {
            await show(report);
            wasThere = true;
          },
        );
      } catch (error) {
        if (left.signal.aborted) break;
        // Restore duties end all connections, and credentials may have changed.
        if (!wasThere || !(error instanceof GuestError) || error.status !== "UNAVAILABLE") throw error;
        host.stderr.write(`guestctl: ${printable(error.message)}; tries again\n`);
        await pause(RETRY_PAUSE_MS, undefined, { signal: left.signal }).catch(() => undefined);
      }
    }
    return 0;
  },
});

/** Closes the client at the end. */
async function watchOnce(
  client: GuestClient,
  options: WatchUsageOptions,
  show: (report: GuestUsage) => Promise<void>,
): Promise<void> {
  using watched = client;
  for await (const report of watched.watchUsage(options)) await show(report);
}

function linesOf(report: GuestUsage): readonly ReportLine[] {
  const { memory, cpu, fileSystems, networks, processes, sessionOomKills } = report;
  const lines: [string, string | undefined][] = [
    ["memory", memory && `${ofTotal(memory.availableBytes, memory.totalBytes)} available`],
    [
      "swap",
      (memory?.swapTotalBytes ?? 0) > 0 ? `${ofTotal(memory?.swapFreeBytes, memory?.swapTotalBytes)} free` : undefined,
    ],
    ["processors", cpu && `${cpu.count}, busy ${seconds(cpu.busyUs)}, steal ${seconds(cpu.stealUs)}`],
    ["uptime", seconds(report.uptimeUs)],
    ...(["cpu", "memory", "io"] as const).map((kind): [string, string | undefined] => {
      const { someUs, fullUs } = report[`${kind}Pressure`] ?? {};
      const full = fullUs === undefined ? "" : `, all ${seconds(fullUs)}`;
      return [`waits for ${kind}`, someUs === undefined ? undefined : `some ${seconds(someUs)}${full}`];
    }),
    ["processes", processes === undefined ? undefined : String(processes)],
    ["out of memory", sessionOomKills === undefined ? undefined : `${sessionOomKills} killed`],
    ...fileSystems.map(({ path, type, problem, availableBytes, totalBytes }): [string, string] => [
      "file system",
      `${path} (${type}) ${problem === "" ? `${ofTotal(availableBytes, totalBytes)} available` : problem}`,
    ]),
    ...networks.map(({ name, receivedBytes, sentBytes }): [string, string] => [
      "network",
      `${name} received ${sizeWords(receivedBytes)}, sent ${sizeWords(sentBytes)}`,
    ]),
  ];
  return lines.flatMap(([name, text]): ReportLine[] => (text === undefined ? [] : [[name, text]]));
}

function ofTotal(part = NaN, total = NaN): string {
  return `${sizeWords(part)} of ${sizeWords(total)}`;
}

function seconds(us: number): string {
  return `${(us * US).toFixed(2)} s`;
}
