import { readFileSync } from "node:fs";
import { availableParallelism, cpus, release, totalmem } from "node:os";
import type { Contender, Row } from "../row.ts";
import { notes, table } from "./table.ts";

/** All of a run. */
export interface Report {
  readonly machine: Machine;
  readonly contenders: readonly { readonly contender: Contender; readonly description: string }[];
  readonly seconds: number;
  readonly rows: readonly Row[];
}

/** The machine, and the duration. */
function machineText({ machine, seconds }: Report): string {
  const { processor, cores, memoryGib, kernel, system, loadAverage } = machine;
  return `${processor}, ${cores} cores, ${memoryGib} GiB, ${system}, Linux ${kernel}; load average ${loadAverage} at the start; ${seconds} s in all.`;
}

function contendersText({ contenders }: Report): string {
  return contenders.map(({ contender, description }) => `- ${contender}: ${description}`).join("\n");
}

/** How many goals were met, and of how many. */
function goalsText({ rows }: Report): string {
  const verdicts = rows.flatMap(({ verdict }) => verdict ?? []);
  return `Of all rows, goals met: ${verdicts.filter(({ met }) => met).length} of ${verdicts.length}.`;
}

function join(...parts: readonly string[]): string {
  return parts.filter((part) => part !== "").join("\n\n");
}

/** The whole run, for the terminal. */
export function wholeReport(report: Report): string {
  return join(machineText(report), contendersText(report), table(report.rows), notes(report.rows), goalsText(report));
}

/** What docs/performance.md shows: the rows that miss their goal, and how many meet it. */
export function goalsReport(report: Report): string {
  const rows = report.rows.filter(({ verdict }) => verdict?.met === false);
  return join(machineText(report), table(rows), goalsText(report));
}

/** Rows of the README: what users notice first, whoever is ahead. */
export const HEADLINES: readonly string[] = [
  "Health p50",
  "exec of /bin/true, 50 at once, p99",
  "stdout in 256 KiB: throughput",
  "memory 60 s after all loads",
  "exec of /bin/true, p50",
  "one byte through cat and back, p50",
  "file read: throughput",
  "first Health of a new agent",
];

/** What README.md shows. */
export function headlines(report: Report): string {
  const rows = HEADLINES.flatMap((name) => report.rows.filter((row) => row.name === name));
  return join(machineText(report), table(rows));
}

/** Where it was measured. */
export interface Machine {
  readonly processor: string;
  readonly cores: number;
  readonly memoryGib: number;
  readonly kernel: string;
  readonly system: string;
  /** Of the last minute, at the start: a busy machine makes figures unreliable. */
  readonly loadAverage: number;
}

/** This machine. */
export function describeMachine(): Machine {
  const [, system = "Linux"] = /^PRETTY_NAME="(.*)"$/m.exec(readFileSync("/etc/os-release", "utf8")) ?? [];
  return {
    processor: cpus()[0]?.model ?? "unknown",
    cores: availableParallelism(),
    memoryGib: Math.round(totalmem() / 2 ** 30),
    kernel: release(),
    system,
    loadAverage: Number(readFileSync("/proc/loadavg", "utf8").split(" ", 1)[0]),
  };
}
