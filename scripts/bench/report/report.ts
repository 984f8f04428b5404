import type { Machine } from "../machine.ts";
import type { Contender, Row } from "../row.ts";
import { markdownTable, notes } from "./table.ts";

/** All of a run. */
export interface Report {
  readonly machine: Machine;
  readonly contenders: readonly { readonly contender: Contender; readonly description: string }[];
  readonly seconds: number;
  readonly rows: readonly Row[];
}

/** The whole run as Markdown: machine, contenders, table, notes, and the goals that were missed. */
export function markdownReport({ machine, contenders, seconds, rows }: Report): string {
  const { processor, cores, memoryGib, kernel, system, loadAverage } = machine;
  const verdicts = rows.flatMap((row) => row.verdicts);
  const met = verdicts.filter((verdict) => verdict.met).length;
  return [
    `${processor}, ${cores} cores, ${memoryGib} GiB, ${system}, Linux ${kernel}; load average ${loadAverage} at the start; ${seconds} s in all.`,
    contenders.map(({ contender, description }) => `- ${contender}: ${description}`).join("\n"),
    "Each cell: median (lowest–highest) of the rounds, and in bold our figure divided by the peer's.",
    markdownTable(rows),
    notes(rows),
    `Goals met: ${met} of ${verdicts.length}.`,
  ].join("\n\n");
}
