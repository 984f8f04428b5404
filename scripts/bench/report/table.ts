import { type Contender, CONTENDERS, type Peer, type Row, type Verdict } from "../row.ts";

/** Three significant digits, without an exponent. */
export function shortNumber(value: number): string {
  if (value === 0) return "0";
  const digits = Math.max(0, Math.min(4, 2 - Math.floor(Math.log10(Math.abs(value)))));
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

/** A Markdown table. */
export function tableOf(head: readonly string[], lines: readonly (readonly string[])[]): string {
  return [head, head.map(() => "---"), ...lines].map((line) => `| ${line.join(" | ")} |`).join("\n");
}

/** Median, where it is wanted the lowest and highest, and our value divided by the peer's in bold; empty: not measured. */
export function cellOf({ spreads, ratios }: Row, contender: Contender, hasRange: boolean): string {
  const spread = spreads[contender];
  if (spread === undefined) return "";
  const { median, low, high } = spread;
  const ratio = ratios[contender as Peer];
  const range = !hasRange || low === high ? "" : ` (${shortNumber(low)}–${shortNumber(high)})`;
  return `${shortNumber(median)}${range}${ratio === undefined ? "" : ` **${shortNumber(ratio)}x**`}`;
}

/** A goal, with the name of its peer; undefined: it is a bound on our own value. */
export function goalText({ relation, limit }: Verdict, peerName: string | undefined, unit: string): string {
  return `${relation === "at most" ? "≤" : "≥"} ${limit}${peerName === undefined ? ` ${unit}` : `x ${peerName}`}`;
}

/** The rows as a Markdown table: median (lowest–highest) and our value divided by the peer's in bold. */
export function markdownTable(rows: readonly Row[]): string {
  const columns = CONTENDERS.filter((column) => rows.some((row) => row.spreads[column] !== undefined));
  const lines = rows.map((row) => {
    const goals = row.verdicts.map((verdict) => {
      const goal = goalText(verdict, verdict.peer, row.unit);
      return verdict.met ? `met: ${goal}` : `MISSED: ${goal} (is ${shortNumber(verdict.actual)})`;
    });
    return [row.name, row.unit, ...columns.map((column) => cellOf(row, column, true)), goals.join("; ")];
  });
  return tableOf(["row", "unit", ...columns, "goals"], lines);
}

/** Notes on the rows. */
export function notes(rows: readonly Row[]): string {
  return rows.flatMap(({ name, note = "" }) => (note === "" ? [] : [`- ${name}: ${note}`])).join("\n");
}
