import type { Contender, GrowthFigure, GrowthStep, Row } from "../row.ts";
import { shortNumber } from "./table.ts";

const MIB = 2 ** 20;
const GIB = 2 ** 30;
const CONTENDERS: readonly Contender[] = ["ours", "grpc-go"];

/** Transfers that grow. */
export const DATA_LOADS = ["read", "stdout", "stdin"] as const;

/** A size as rows name it. */
function sizeText({ load, size }: GrowthStep): string {
  if (load === "execs") return String(size);
  return size >= GIB ? `${size / GIB} GiB` : `${size / MIB} MiB`;
}

/** What the rows of a step begin with. */
export function nameOfStep(step: GrowthStep): string {
  return step.load === "execs" ? `${sizeText(step)} execs at once` : `${step.load} of ${sizeText(step)}`;
}

/** One cost of one load at one size. */
type GrowingRow = Row & { readonly growth: GrowthFigure };

/**
 * The factor by which a contender's total cost grew between two sizes. A row has the cost of each command or GiB;
 * memory is the total.
 */
function costRatio(contender: Contender, from: GrowingRow, to: GrowingRow): number | undefined {
  const before = from.spreads[contender]?.median;
  const after = to.spreads[contender]?.median;
  if (before === undefined || after === undefined) return undefined;
  return (after / before) * (to.growth.cost === "peak memory" ? 1 : to.growth.size / from.growth.size);
}

function sentenceOf(rows: readonly GrowingRow[]): string[] {
  const [from, to] = rows.toSorted((a, b) => a.growth.size - b.growth.size).slice(-2);
  if (from === undefined || to === undefined) return [];
  const { cost, size } = to.growth;
  const [ours, ...others] = CONTENDERS.flatMap((contender) => {
    const ratio = costRatio(contender, from, to);
    return ratio === undefined ? [] : [{ contender, text: `${shortNumber(ratio)}x` }];
  });
  if (ours === undefined) return [];
  const straight = cost === "peak memory" ? "" : ` (${shortNumber(size / from.growth.size)}x would be straight)`;
  const rest = others.map(({ contender, text }) => `; ${contender} ${text}`);
  return [
    `- ${nameOfStep(to.growth)}: ${ours.text} the ${cost} of ${sizeText(from.growth)}${straight}${rest.join("")}`,
  ];
}

/** A line for the last step of each cost that grows, as a Markdown list; empty when nothing about growth was measured. */
export function growthSummary(rows: readonly Row[]): string {
  const growing = rows.filter((row): row is GrowingRow => row.growth !== undefined);
  const curves = Map.groupBy(growing, ({ growth: { load, cost } }) => `${cost} of ${load}`);
  return [...curves.values()].flatMap(sentenceOf).join("\n");
}
