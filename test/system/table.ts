import type { Findings } from "./exercise.ts";
import type { Setting } from "./sandbox.ts";

/** Results of a run in one root. */
export interface Run {
  readonly root: string;
  readonly setting: Setting;
  readonly findings: Findings;
}

/** Parts of a setting that a result can depend on, in words. */
const CAUSES: readonly (readonly [key: keyof Setting, yes: string, no: string])[] = [
  ["dev", "with /dev", "without /dev"],
  ["proc", "with /proc", "without /proc"],
  ["writable", "in a writable root", "in a read-only one"],
  ["hostile", "hostile", "not hostile"],
];

function valuesOf(runs: readonly Run[], column: string): string[] {
  return [...new Set(runs.map(({ findings }) => findings[column] ?? ""))];
}

/** The results of all runs in one cell: the same value, one that depends on one part, or all values. */
function cell(runs: readonly Run[], column: string): string {
  const values = valuesOf(runs, column);
  if (values.length === 1) return values[0] ?? "";
  for (const [key, yes, no] of CAUSES) {
    const sides = [true, false].map((side) =>
      valuesOf(
        runs.filter(({ setting }) => setting[key] === side),
        column,
      ),
    );
    const [[withIt], [without]] = [sides[0] ?? [], sides[1] ?? []];
    if (sides.every((side) => side.length === 1)) return `${yes}: ${withIt ?? ""}, ${no}: ${without ?? ""}`;
  }
  return values.join(" or ");
}

/** A table in Markdown: a row for each root and user, with all results of the runs there. */
export function tableOf(runs: readonly Run[]): string {
  const columns = Object.keys(runs[0]?.findings ?? {});
  const rows = Map.groupBy(runs, ({ root, setting }) => `${root} | ${setting.user}`);
  const line = (cells: readonly string[]): string => `| ${cells.join(" | ")} |\n`;
  const names = ["root", "user", "runs", ...columns];
  const body = [...rows].map(([name, of]) => line([name, String(of.length), ...columns.map((key) => cell(of, key))]));
  return [line(names), line(names.map(() => "---")), ...body].join("");
}
