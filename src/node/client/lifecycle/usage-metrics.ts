import type { GuestUsage } from "./messages.ts";

const US = 1e-6;

/** A metric: its name without the prefix, its help text, and a function that extracts its values from a report. */
type Metric = readonly [name: string, help: string, values: (usage: GuestUsage) => readonly Sample[]];

/** A value with its labels; undefined if the guest does not report the value. */
type Sample = readonly [value: number | undefined, labels?: Readonly<Record<string, string>>];

const PRESSURES = ["cpu", "memory", "io"] as const;

/** Converts microseconds to seconds. */
const seconds = (us: number | undefined): number | undefined => (us === undefined ? undefined : us * US);

const ofPressure = (usage: GuestUsage, part: "someUs" | "fullUs"): readonly Sample[] =>
  PRESSURES.map((resource) => [seconds(usage[`${resource}Pressure`]?.[part]), { resource }]);

type FileSystem = GuestUsage["fileSystems"][number];
const ofFileSystems = (
  { fileSystems }: GuestUsage,
  value: (one: FileSystem) => number | undefined,
): readonly Sample[] => fileSystems.map((one) => [value(one), { mountpoint: one.path, fstype: one.type }]);

/** Names follow https://prometheus.io/docs/practices/naming/: base units, and `_total` for counters. */
const METRICS: readonly Metric[] = [
  ["uptime_seconds_total", "Time since the guest's boot.", (u) => [[u.uptimeUs * US]]],
  ["generation", "Number of times that the guest was restored.", (u) => [[u.generation]]],
  ["cpus", "Number of processors that are online.", (u) => [[u.cpu?.count]]],
  ["cpu_busy_seconds_total", "Time that all processors together were busy.", (u) => [[seconds(u.cpu?.busyUs)]]],
  [
    "cpu_steal_seconds_total",
    "Time in which processors had work, but the host did not let them run.",
    (u) => [[seconds(u.cpu?.stealUs)]],
  ],
  ["memory_total_bytes", "MemTotal.", (u) => [[u.memory?.totalBytes]]],
  ["memory_available_bytes", "MemAvailable.", (u) => [[u.memory?.availableBytes]]],
  ["swap_total_bytes", "SwapTotal.", (u) => [[u.memory?.swapTotalBytes]]],
  ["swap_free_bytes", "SwapFree.", (u) => [[u.memory?.swapFreeBytes]]],
  [
    "pressure_waiting_seconds_total",
    "Time in which some tasks waited for the resource (PSI, some).",
    (u) => ofPressure(u, "someUs"),
  ],
  [
    "pressure_stalled_seconds_total",
    "Time in which all tasks waited for the resource (PSI, full).",
    (u) => ofPressure(u, "fullUs"),
  ],
  ["filesystem_size_bytes", "Size of a file system.", (u) => ofFileSystems(u, ({ totalBytes }) => totalBytes)],
  [
    "filesystem_free_bytes",
    "Free space, including what is reserved for root.",
    (u) => ofFileSystems(u, ({ freeBytes }) => freeBytes),
  ],
  [
    "filesystem_avail_bytes",
    "Free space that users other than root may use.",
    (u) => ofFileSystems(u, ({ availableBytes }) => availableBytes),
  ],
  ["filesystem_files", "Inodes.", (u) => ofFileSystems(u, ({ inodes }) => inodes)],
  ["filesystem_files_free", "Free inodes.", (u) => ofFileSystems(u, ({ freeInodes }) => freeInodes)],
  [
    "filesystem_device_error",
    "1 if the file system did not report its sizes, otherwise 0.",
    (u) => ofFileSystems(u, ({ problem }) => (problem === "" ? 0 : 1)),
  ],
  [
    "network_receive_bytes_total",
    "Bytes received.",
    (u) => u.networks.map(({ name, receivedBytes }) => [receivedBytes, { device: name }]),
  ],
  [
    "network_transmit_bytes_total",
    "Bytes sent.",
    (u) => u.networks.map(({ name, sentBytes }) => [sentBytes, { device: name }]),
  ],
  ["processes", "Number of processes in the guest.", (u) => [[u.processes]]],
  [
    "session_oom_kills_total",
    "Number of processes of the session that the out-of-memory killer has killed.",
    (u) => [[u.sessionOomKills]],
  ],
];

/** A guest's report and the labels of all its lines, such as `{ sandbox: "web" }`. */
export interface LabelledUsage {
  readonly usage: GuestUsage;
  readonly labels: Readonly<Record<string, string>>;
}

/**
 * Formats reports in the Prometheus text format (https://prometheus.io/docs/instrumenting/exposition_formats/), without
 * time stamps. A value that a guest does not report has no line. Pass the reports of several guests in a single call,
 * because the format allows the HELP and TYPE lines of a metric only once.
 *
 * @param usage the report of one guest, or the reports of several guests with labels that distinguish them
 * @param labels labels of every line, such as `{ node: "n1" }`
 */
export function usageMetrics(
  usage: GuestUsage | readonly LabelledUsage[],
  labels: Readonly<Record<string, string>> = {},
): string {
  const reports = isSeveral(usage) ? usage : [{ usage, labels: {} }];
  return METRICS.map(([name, help, values]) => {
    const full = `guest_${name}`;
    const lines = reports.flatMap((report) =>
      values(report.usage).map(([value, own]) =>
        value === undefined ? "" : `${full}${labelled({ ...labels, ...report.labels, ...own })} ${value}\n`,
      ),
    );
    const body = lines.join("");
    if (body === "") return "";
    return `# HELP ${full} ${help}\n# TYPE ${full} ${name.endsWith("_total") ? "counter" : "gauge"}\n${body}`;
  }).join("");
}

function isSeveral(usage: GuestUsage | readonly LabelledUsage[]): usage is readonly LabelledUsage[] {
  return Array.isArray(usage);
}

/**
 * Formats labels. Escapes their values, because the guest chooses the names of its mount points, which may contain any
 * characters.
 */
function labelled(labels: Readonly<Record<string, string>>): string {
  const pairs = Object.entries(labels).map(([name, value]) => {
    const escaped = value.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
    return `${name}="${escaped}"`;
  });
  return pairs.length === 0 ? "" : `{${pairs.join(",")}}`;
}
