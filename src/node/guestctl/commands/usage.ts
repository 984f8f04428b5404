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
import { ANSWER_TIMEOUT_MS, CONNECTION_OPTIONS, openClient } from "../connection/index.ts";
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
    metrics: { help: "print in Prometheus' text format" },
    ...CONNECTION_OPTIONS,
  },
  notes: `With --watch, "processors" also shows the share of time that all processors together were busy since the previous
report.
With --json, prints one object per report, with the fields of the schema (GuestUsage). Counters begin at the boot.
Values that the guest does not know are absent. With --watch, every report after the first also has "cpu_busy_percent",
the share of busy time since the previous report.`,
  statuses: "0 if the usage was shown, or if SIGINT or SIGTERM ended guestctl; 125 if guestctl failed.",
  examples: ["usage", "usage --watch --interval 1s --json", "usage --metrics"],
  hints: [["--no-stream", "usage prints one report, unless --watch is given"]],
  async run({ values }, host) {
    const intervalMs = parseDurationMs(values.interval, "--interval");
    if (intervalMs !== undefined && values.watch !== true) throw new UsageError("--interval requires --watch");
    if (values.metrics === true && values.json === true) throw new UsageError("give --metrics or --json, not both");
    const textOf = (report: GuestUsage, percent?: number): string =>
      values.metrics === true ? usageMetrics(report) : reportText(linesOf(report, percent));
    let before: GuestUsage | undefined;
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
        const percent = before && busyPercent(before, report);
        before = report;
        const object = schemaObject(GuestUsageSchema, report);
        const json = percent === undefined ? object : { ...object, cpu_busy_percent: percent };
        await writeAll(host.stdout, values.json === true ? jsonLine(json) : `${textOf(report, percent)}\n`);
      },
    );
  },
});

/**
 * Share of all processors' time that was busy between two reports, in per cent with one decimal. Undefined if the guest
 * does not report its processors, or rebooted between the reports.
 */
function busyPercent(before: GuestUsage, { cpu, uptimeUs }: GuestUsage): number | undefined {
  const elapsedUs = uptimeUs - before.uptimeUs;
  if (cpu === undefined || before.cpu === undefined || elapsedUs <= 0 || cpu.count === 0) return undefined;
  const busyUs = Math.max(0, cpu.busyUs - before.cpu.busyUs);
  return Math.round((1_000 * busyUs) / (elapsedUs * cpu.count)) / 10;
}

function linesOf(report: GuestUsage, percent: number | undefined): readonly ReportLine[] {
  const { memory, cpu, fileSystems, networks, processes, sessionOomKills } = report;
  const busy = percent === undefined ? "" : `${percent.toFixed(1)} % busy, since boot `;
  const lines: [string, string | undefined][] = [
    ["memory", memory && `${ofTotal(memory.availableBytes, memory.totalBytes)} available`],
    [
      "swap",
      (memory?.swapTotalBytes ?? 0) > 0 ? `${ofTotal(memory?.swapFreeBytes, memory?.swapTotalBytes)} free` : undefined,
    ],
    ["processors", cpu && `${cpu.count}, ${busy}busy ${seconds(cpu.busyUs)}, steal ${seconds(cpu.stealUs)}`],
    ["uptime", seconds(report.uptimeUs)],
    ...(["cpu", "memory", "io"] as const).map((kind): [string, string | undefined] => {
      const { someUs, fullUs } = report[`${kind}Pressure`] ?? {};
      const full = fullUs === undefined ? "" : `, all ${seconds(fullUs)}`;
      return [`waits for ${kind}`, someUs === undefined ? undefined : `some ${seconds(someUs)}${full}`];
    }),
    ["processes", processes === undefined ? undefined : String(processes)],
    ["out of memory", sessionOomKills === undefined ? undefined : `${sessionOomKills} killed`],
    ...fileSystems.map(({ path, type, problem, availableBytes, totalBytes }): [string, string] => {
      const space = `${ofTotal(availableBytes, totalBytes)} available`;
      return ["file system", `${path} (${type}) ${problem === "" ? space : problem}`];
    }),
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
