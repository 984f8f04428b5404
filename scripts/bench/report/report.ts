import { existsSync, readFileSync } from "node:fs";
import { availableParallelism, cpus, release, totalmem } from "node:os";
import type { Contender, Row } from "../row.ts";
import { growthSummary } from "./growth.ts";
import { markdownTable, notes } from "./table.ts";

/** All of a run. */
export interface Report {
  readonly machine: Machine;
  readonly contenders: readonly { readonly contender: Contender; readonly description: string }[];
  readonly seconds: number;
  readonly rows: readonly Row[];
}

/** The machine, and the duration. */
export function machineText({ machine, seconds }: Pick<Report, "machine" | "seconds">): string {
  const { processor, cores, memoryGib, kernel, system, loadAverage } = machine;
  return `${processor}, ${cores} cores, ${memoryGib} GiB, ${system}, Linux ${kernel}; load average ${loadAverage} at the start; ${seconds} s in all.`;
}

function growthText(rows: readonly Row[]): string {
  const summary = growthSummary(rows);
  return summary === "" ? "" : `How cost grows, from the last size but one to the last:\n\n${summary}`;
}

/** How many goals were met, and of how many. */
export function goalsMet(rows: readonly Row[]): string {
  const verdicts = rows.flatMap((row) => row.verdicts);
  return `${verdicts.filter(({ met }) => met).length} of ${verdicts.length}`;
}

/** The whole run as Markdown: machine, contenders, table, growth, notes, and how many goals were met. */
export function markdownReport(report: Report): string {
  const { contenders, rows } = report;
  const parts = [
    machineText(report),
    contenders.map(({ contender, description }) => `- ${contender}: ${description}`).join("\n"),
    "Each cell: median (lowest–highest) of the rounds, and in bold our figure divided by the peer's.",
    markdownTable(rows),
    growthText(rows),
    notes(rows),
    `Goals met: ${goalsMet(rows)}.`,
  ];
  return parts.filter((part) => part !== "").join("\n\n");
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

const BEGIN = "<!-- figures -->";
const END = "<!-- end of figures -->";

/** The text for a file: between its two marks where it has them, else all of it. */
export function insertInto(file: string, text: string): string {
  const document = existsSync(file) ? readFileSync(file, "utf8") : "";
  const begin = document.indexOf(BEGIN);
  const end = document.indexOf(END);
  if (begin < 0 || end < begin) return `${text}\n`;
  return `${document.slice(0, begin + BEGIN.length)}\n\n${text}\n\n${document.slice(end)}`;
}
