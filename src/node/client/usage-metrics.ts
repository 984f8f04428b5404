import type { GuestUsage } from "./messages.ts";

const US = 1e-6;

/** A metric: its name without the prefix, its help text, and the values of a report. */
interface Metric {
  readonly name: string;
  readonly help: string;
  readonly values: (usage: GuestUsage) => readonly Sample[];
}

/** A value with its own labels. Undefined: the guest does not tell it. */
type Sample = readonly [value: number | undefined, labels?: Readonly<Record<string, string>>];

const PRESSURES = ["cpu", "memory", "io"] as const;

/** Of a sum in microseconds, in seconds. */
const seconds = (us: number | undefined): number | undefined => (us === undefined ? undefined : us * US);

const ofPressure = (usage: GuestUsage, part: "someUs" | "fullUs"): readonly Sample[] =>
  PRESSURES.map((resource) => [seconds(usage[`${resource}Pressure`]?.[part]), { resource }]);

type FileSystem = GuestUsage["fileSystems"][number];
const ofFileSystems = (
  { fileSystems }: GuestUsage,
  value: (one: FileSystem) => number | undefined,
): readonly Sample[] => fileSystems.map((one) => [value(one), { mountpoint: one.path, fstype: one.type }]);

/** In base units and with the suffixes of https://prometheus.io/docs/practices/naming/: `_total` is a counter. */
const METRICS: readonly Metric[] = [
  { name: "uptime_seconds_total", help: "Time since the guest's boot.", values: (u) => [[u.uptimeUs * US]] },
  { name: "generation", help: "How often the guest was restored.", values: (u) => [[u.generation]] },
  { name: "cpus", help: "Processors that are online.", values: (u) => [[u.cpu?.count]] },
  {
    name: "cpu_busy_seconds_total",
    help: "Time that all processors together were busy.",
    values: (u) => [[seconds(u.cpu?.busyUs)]],
  },
  {
    name: "cpu_steal_seconds_total",
    help: "Time in which processors had work and the host gave them no time.",
    values: (u) => [[seconds(u.cpu?.stealUs)]],
  },
  { name: "memory_total_bytes", help: "MemTotal.", values: (u) => [[u.memory?.totalBytes]] },
  { name: "memory_available_bytes", help: "MemAvailable.", values: (u) => [[u.memory?.availableBytes]] },
  { name: "swap_total_bytes", help: "SwapTotal.", values: (u) => [[u.memory?.swapTotalBytes]] },
  { name: "swap_free_bytes", help: "SwapFree.", values: (u) => [[u.memory?.swapFreeBytes]] },
  {
    name: "pressure_waiting_seconds_total",
    help: "Time in which some tasks waited (PSI, some).",
    values: (u) => ofPressure(u, "someUs"),
  },
  {
    name: "pressure_stalled_seconds_total",
    help: "Time in which all tasks waited (PSI, full).",
    values: (u) => ofPressure(u, "fullUs"),
  },
  {
    name: "filesystem_size_bytes",
    help: "Size of a file system.",
    values: (u) => ofFileSystems(u, ({ totalBytes }) => totalBytes),
  },
  {
    name: "filesystem_free_bytes",
    help: "Free space, root's included.",
    values: (u) => ofFileSystems(u, ({ freeBytes }) => freeBytes),
  },
  {
    name: "filesystem_avail_bytes",
    help: "Free space for everybody.",
    values: (u) => ofFileSystems(u, ({ availableBytes }) => availableBytes),
  },
  { name: "filesystem_files", help: "Inodes.", values: (u) => ofFileSystems(u, ({ inodes }) => inodes) },
  {
    name: "filesystem_files_free",
    help: "Free inodes.",
    values: (u) => ofFileSystems(u, ({ freeInodes }) => freeInodes),
  },
  {
    name: "filesystem_device_error",
    help: "1: the file system gave no figures.",
    values: (u) => ofFileSystems(u, ({ problem }) => (problem === "" ? 0 : 1)),
  },
  {
    name: "network_receive_bytes_total",
    help: "Bytes received.",
    values: (u) => u.networks.map(({ name, receivedBytes }) => [receivedBytes, { device: name }]),
  },
  {
    name: "network_transmit_bytes_total",
    help: "Bytes sent.",
    values: (u) => u.networks.map(({ name, sentBytes }) => [sentBytes, { device: name }]),
  },
  { name: "processes", help: "Processes of the guest.", values: (u) => [[u.processes]] },
  {
    name: "session_oom_kills_total",
    help: "Processes of the session that the out-of-memory killer has killed.",
    values: (u) => [[u.sessionOomKills]],
  },
];

/**
 * A report in Prometheus' text form (https://prometheus.io/docs/instrumenting/exposition_formats/), without time
 * stamps. What the guest does not tell has no line.
 *
 * @param labels labels of every line, such as `{ sandbox: "web" }`
 */
export function usageMetrics(usage: GuestUsage, labels: Readonly<Record<string, string>> = {}): string {
  return METRICS.map(({ name, help, values }) => {
    const full = `guest_${name}`;
    const lines = values(usage).map(([value, own]) =>
      value === undefined ? "" : `${full}${labelled({ ...labels, ...own })} ${value}\n`,
    );
    const body = lines.join("");
    if (body === "") return "";
    return `# HELP ${full} ${help}\n# TYPE ${full} ${name.endsWith("_total") ? "counter" : "gauge"}\n${body}`;
  }).join("");
}

/** Values may hold any characters: the guest chooses the names of its mount points. */
function labelled(labels: Readonly<Record<string, string>>): string {
  const pairs = Object.entries(labels).map(([name, value]) => {
    const escaped = value.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
    return `${name}="${escaped}"`;
  });
  return pairs.length === 0 ? "" : `{${pairs.join(",")}}`;
}
