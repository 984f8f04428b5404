import type { Contender } from "../row.ts";
import { goalsMet, machineText, type Report } from "./report.ts";
import { cellOf, goalText, tableOf } from "./table.ts";

/** Contenders with a column, and their names for readers. */
const NAMES: ReadonlyMap<Contender, string> = new Map([
  ["ours", "ours"],
  ["grpc-go", "grpc-go"],
  ["go-https", "Go HTTPS"],
  ["openssh", "OpenSSH"],
  ["node-net", "bare Node"],
]);

/** The most important rows of a full run, those where a peer is ahead among them, as far as they were measured. */
export const HEADLINES: readonly string[] = [
  "Health p50",
  "CPU of 1,000 Health calls",
  "exec of /bin/true, p50",
  "CPU of an exec of /bin/true",
  "first 100 execs: CPU of each",
  "exec of /bin/true, 50 at once, p99",
  "one byte through cat and back, p50",
  "stdout in 256 KiB: throughput",
  "stdout in 256 KiB: CPU",
  "stdin in 256 KiB: throughput",
  "stdin in 256 KiB: CPU",
  "terminal: throughput",
  "file read: throughput",
  "file read: CPU",
  "file write: throughput",
  "file write: CPU",
  "file write without checksum: throughput",
  "file write without checksum: CPU",
  "64 file reads at once: throughput",
  "64 file writes at once: throughput",
  "256 execs at once: peak memory",
  "peak memory of all loads",
  "memory 60 s after all loads",
  "the same, times that before all loads",
  "start to the workload",
  "start to the port",
  "first Health of a new agent",
  "its 2nd to 20th Health, p50",
  "size of the archive",
];

/** The most important rows as Markdown, with the machine and the number of goals met in all rows. */
export function summaryReport(report: Report): string {
  const shown = HEADLINES.flatMap((name) => report.rows.filter((row) => row.name === name));
  const columns = [...NAMES].filter(([contender]) => shown.some((row) => row.spreads[contender] !== undefined));
  const lines = shown.map((row) => {
    const goals = (met: boolean): string =>
      row.verdicts
        .filter((verdict) => verdict.met === met)
        .map((verdict) => goalText(verdict, verdict.peer && (NAMES.get(verdict.peer) ?? verdict.peer), row.unit))
        .join(", ");
    return [
      row.name,
      row.unit,
      ...columns.map(([contender]) => cellOf(row, contender, false)),
      goals(true),
      goals(false),
    ];
  });
  return [
    machineText(report),
    "Each cell: the median, and in bold our figure divided by the peer's.",
    tableOf(["row", "unit", ...columns.map(([, name]) => name), "goals met", "goals missed"], lines),
    `Of all rows, goals met: ${goalsMet(report.rows)}.`,
  ].join("\n\n");
}
