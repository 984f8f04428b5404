import type { Contender, Peer, Row, Verdict } from "../row.ts";
import { goalsMet, machineText, type Report } from "./report.ts";
import { shortNumber } from "./table.ts";

const COLUMNS: readonly (readonly [Contender, string])[] = [
  ["ours", "ours"],
  ["grpc-go", "grpc-go"],
  ["go-https", "Go HTTPS"],
  ["openssh", "OpenSSH"],
  ["node-net", "bare Node"],
];

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

function cell(row: Row, contender: Contender): string {
  const spread = row.spreads[contender];
  if (spread === undefined) return "";
  const ratio = row.ratios[contender as Peer];
  return `${shortNumber(spread.median)}${ratio === undefined ? "" : ` **${shortNumber(ratio)}x**`}`;
}

function goalText({ peer, relation, limit }: Verdict, unit: string): string {
  const [, name] = COLUMNS.find(([contender]) => contender === peer) ?? [];
  return `${relation === "at most" ? "≤" : "≥"} ${limit}${name === undefined ? ` ${unit}` : `x ${name}`}`;
}

function goalsOf(row: Row, met: boolean): string {
  const goals = row.verdicts.filter((verdict) => verdict.met === met);
  return goals.map((verdict) => goalText(verdict, row.unit)).join(", ");
}

/** The most important rows as Markdown, with the machine and the number of goals met in all rows. */
export function summaryReport(report: Report): string {
  const shown = HEADLINES.flatMap((name) => report.rows.filter((row) => row.name === name));
  const columns = COLUMNS.filter(([contender]) => shown.some((row) => row.spreads[contender] !== undefined));
  const lines = shown.map((row) => [
    row.name,
    row.unit,
    ...columns.map(([contender]) => cell(row, contender)),
    goalsOf(row, true),
    goalsOf(row, false),
  ]);
  const head = ["row", "unit", ...columns.map(([, name]) => name), "goals met", "goals missed"];
  return [
    machineText(report),
    "Each cell: the median, and in bold our figure divided by the peer's.",
    [head, head.map(() => "---"), ...lines].map((line) => `| ${line.join(" | ")} |`).join("\n"),
    `Of all rows, goals met: ${goalsMet(report.rows)}.`,
  ].join("\n\n");
}
