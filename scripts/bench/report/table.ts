import type { Contender, Peer, Row, Spread, Verdict } from "../row.ts";

const COLUMNS: readonly Contender[] = ["ours", "node-net", "node-http2", "grpc-go", "go-https", "openssh", "qemu-ga"];

/** Three significant digits, without an exponent. */
export function shortNumber(value: number): string {
  if (value === 0) return "0";
  const digits = Math.max(0, Math.min(4, 2 - Math.floor(Math.log10(Math.abs(value)))));
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

function cell(spread: Spread | undefined, ratio: number | undefined): string {
  if (spread === undefined) return "";
  const { median, low, high } = spread;
  const range = low === high ? "" : ` (${shortNumber(low)}–${shortNumber(high)})`;
  return `${shortNumber(median)}${range}${ratio === undefined ? "" : ` **${shortNumber(ratio)}x**`}`;
}

function goalText({ peer, relation, limit, actual, met }: Verdict, unit: string): string {
  const sign = relation === "at most" ? "≤" : "≥";
  const scale = peer === undefined ? ` ${unit}` : `x ${peer}`;
  return `${met ? "met" : "MISSED"}: ${sign} ${limit}${scale}${met ? "" : ` (is ${shortNumber(actual)})`}`;
}

/** The rows as a Markdown table: median (lowest–highest) and our value divided by the peer's in bold. */
export function markdownTable(rows: readonly Row[]): string {
  const columns = COLUMNS.filter((column) => rows.some((row) => row.spreads[column] !== undefined));
  const lines = rows.map((row) => {
    const cells = columns.map((column) => cell(row.spreads[column], row.ratios[column as Peer]));
    const goals = row.verdicts.map((verdict) => goalText(verdict, row.unit)).join("; ");
    return [row.name, row.unit, ...cells, goals];
  });
  const head = ["row", "unit", ...columns, "goals"];
  const rule = head.map(() => "---");
  return [head, rule, ...lines].map((line) => `| ${line.join(" | ")} |`).join("\n");
}

/** Notes on the rows. */
export function notes(rows: readonly Row[]): string {
  const noted = rows.filter((row) => row.note !== "");
  return noted.map((row) => `- ${row.name}: ${row.note}`).join("\n");
}
