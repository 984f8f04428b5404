import type { Machine } from "../machine.ts";
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

/** Where it was measured, and how long that took. */
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
