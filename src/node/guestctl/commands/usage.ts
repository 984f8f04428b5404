import { GuestUsageSchema } from "../../../shared/gen/svc/guest/v1alpha1/usage_pb.ts";
import { type GuestUsage, usageMetrics } from "../../client/index.ts";
import {
  type Command,
  defineCommand,
  jsonLine,
  parseDurationMs,
  type ReportLine,
  reportText,
  sizeWords,
  UsageError,
  writeAll,
} from "../cli/index.ts";
import { ANSWER_TIMEOUT_MS, CONNECTION_OPTIONS, openClient } from "../target/index.ts";
import { watchUntilSignal } from "./lasting-watch.ts";
import { schemaObject } from "./schema.ts";

const US = 1e-6;

export const usage: Command = defineCommand({
  usage: ["usage [options]"],
  about: `Shows how much memory, processor time, disk space and network traffic a sandbox uses, as its kernel counts it. Does not
count as user activity.`,
  options: {
    watch: { short: "w", help: "report repeatedly, until SIGINT or SIGTERM" },
    interval: { argument: "DURATION", help: "with --watch: time between two reports, 1s to 24h (default 5s)" },
    metrics: { help: "print Prometheus' text form" },
    ...CONNECTION_OPTIONS,
  },
  notes: `With --json, one object a report, the fields of the schema (GuestUsage): counters since boot, no percentages. What the
guest does not know is absent.`,
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
      const report = await client.usage({ requestTimeoutMs: ANSWER_TIMEOUT_MS });
      return { text: textOf(report), json: schemaObject(GuestUsageSchema, report) };
    }
    return watchUntilSignal(
      values,
      host,
      (client, signal) => client.watchUsage({ intervalMs, signal }),
      async (report) => {
        const text = values.json === true ? jsonLine(schemaObject(GuestUsageSchema, report)) : `${textOf(report)}\n`;
        await writeAll(host.stdout, text);
      },
    );
  },
});

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
