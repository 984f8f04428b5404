import type { Contender, GrowthFigure, GrowthStep, Row } from "../row.ts";
import { shortNumber } from "./table.ts";

const MIB = 2 ** 20;
const GIB = 2 ** 30;
const CONTENDERS: readonly Contender[] = ["ours", "grpc-go"];

/** Transfers that grow. */
export const DATA_LOADS = ["read", "stdout", "stdin"] as const;

/** A size as rows name it. */
export function sizeText({ load, size }: GrowthStep): string {
  if (load === "execs") return String(size);
  return size >= GIB ? `${size / GIB} GiB` : `${size / MIB} MiB`;
}

/** What the rows of a step begin with. */
export function nameOfStep(step: GrowthStep): string {
  return step.load === "execs" ? `${sizeText(step)} execs at once` : `${step.load} of ${sizeText(step)}`;
}

/** The cost of one size of a load. */
export interface Point extends GrowthStep {
  /** For all commands or bytes together: seconds, or MB. */
  readonly total: number;
}

/** Growth of one cost of one load, for all contenders. */
export interface Curve extends Pick<GrowthFigure, "load" | "cost"> {
  /** Whether the cost should grow linearly. Memory should not. */
  readonly proportional: boolean;
  /** From the smallest size to the largest. */
  readonly lines: readonly { readonly contender: Contender; readonly points: readonly Point[] }[];
}

/** In the order of the panels: a row of them for commands, one for the CPU time of transfers, and one for their memory. */
const CURVES: readonly Pick<Curve, "load" | "cost">[] = [
  ...(["time", "CPU time", "peak memory"] as const).map((cost) => ({ load: "execs", cost }) as const),
  ...(["CPU time", "peak memory"] as const).flatMap((cost) => DATA_LOADS.map((load) => ({ load, cost }))),
];

/** Of the whole load, from the row's figure for each command or GiB; memory is that of all anyway. */
function totalOf({ load, size, cost }: GrowthFigure, value: number): number {
  if (cost === "peak memory") return value;
  return load === "execs" ? (value * size) / 1e3 : (value * size) / GIB;
}

/** Growth from the rows, without costs measured at fewer than two sizes. */
export function growthCurves(rows: readonly Row[]): Curve[] {
  const pointsOf = (contender: Contender, { load, cost }: Pick<Curve, "load" | "cost">): Point[] => {
    const points = rows.flatMap(({ growth, spreads }) => {
      const value = spreads[contender]?.median;
      if (growth?.load !== load || growth.cost !== cost || value === undefined) return [];
      return [{ load, size: growth.size, total: totalOf(growth, value) }];
    });
    return points.toSorted((a, b) => a.size - b.size);
  };
  const curves = CURVES.map((curve): Curve => {
    const lines = CONTENDERS.map((contender) => ({ contender, points: pointsOf(contender, curve) }));
    return {
      ...curve,
      proportional: curve.cost !== "peak memory",
      lines: lines.filter(({ points }) => points.length > 1),
    };
  });
  return curves.filter(({ lines }) => lines.length > 0);
}

/** From the last size but one to the last: how many times the load, and how many times the cost. */
export interface Step {
  readonly contender: Contender;
  readonly from: Point;
  readonly to: Point;
  readonly loadRatio: number;
  readonly costRatio: number;
}

/** Each contender's step to the largest size. */
export function lastSteps({ lines }: Curve): Step[] {
  return lines.flatMap(({ contender, points }) => {
    const [from, to] = points.slice(-2);
    if (from === undefined || to === undefined) return [];
    return [{ contender, from, to, loadRatio: to.size / from.size, costRatio: to.total / from.total }];
  });
}

/** Starts with the agent, which is measured in every run. */
function sentenceOf(curve: Curve): string[] {
  const { cost, proportional } = curve;
  const [ours, ...others] = lastSteps(curve);
  if (ours === undefined) return [];
  const { from, to, loadRatio, costRatio } = ours;
  const straight = proportional ? ` (${shortNumber(loadRatio)}x would be straight)` : "";
  const rest = others.map((step) => `; ${step.contender} ${shortNumber(step.costRatio)}x`);
  return [
    `- ${nameOfStep(to)}: ${shortNumber(costRatio)}x the ${cost} of ${sizeText(from)}${straight}${rest.join("")}`,
  ];
}

/** A line for each cost that grows, as a Markdown list; empty when nothing about growth was measured. */
export function growthSummary(rows: readonly Row[]): string {
  return growthCurves(rows).flatMap(sentenceOf).join("\n");
}
