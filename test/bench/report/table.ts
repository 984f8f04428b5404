import { type Contender, CONTENDERS, type Row, type Verdict } from "../row.ts";

/** Contenders as tables name them. */
const NAMES: Readonly<Record<Contender, string>> = {
  ours: "ours",
  "node-net": "bare Node",
  "grpc-go": "grpc-go",
  openssh: "OpenSSH",
  "exec-tar": "tar over exec",
};

/** Three significant digits, without an exponent. */
function shortNumber(value: number): string {
  if (value === 0) return "0";
  const digits = Math.max(0, Math.min(4, 2 - Math.floor(Math.log10(Math.abs(value)))));
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

/** A goal and whether it was met. */
function goalText(verdict: Verdict | undefined, unit: string): string {
  if (verdict === undefined) return "";
  const { relation, limit, peer, met } = verdict;
  const bound = `${relation === "at most" ? "≤" : "≥"} ${limit}${peer === undefined ? ` ${unit}` : `x ${NAMES[peer]}`}`;
  return met ? `${bound}: met` : `${bound}: **missed**`;
}

/** Rows as a Markdown table: our figure, its multiples of the peers', and the verdict. */
export function table(rows: readonly Row[]): string {
  const lines = rows.map((row) => {
    const { spreads, ratios, unit, verdict } = row;
    const besides = CONTENDERS.flatMap((peer) => {
      const ratio = peer === "ours" ? undefined : ratios[peer];
      return ratio === undefined ? [] : [`${shortNumber(ratio)}x ${NAMES[peer]}`];
    });
    const ours = `${shortNumber(spreads.ours?.median ?? NaN)} ${unit}`;
    return [row.name, ours, besides.join(", "), goalText(verdict, unit)];
  });
  const head = ["row", "ours", "times a peer's", "goal"];
  return [head, head.map(() => "---"), ...lines].map((line) => `| ${line.join(" | ")} |`).join("\n");
}

/** Notes on the rows. */
export function notes(rows: readonly Row[]): string {
  return rows.flatMap(({ name, note = "" }) => (note === "" ? [] : [`- ${name}: ${note}`])).join("\n");
}
