import type { Contender, Row } from "../row.ts";
import { type GrowingLoad, type GrowthStep, nameOfStep, readGrowthName, sizeText } from "../rows/growth-names.ts";
import { shortNumber } from "./table.ts";

/** The cost of one size of a load. */
export interface Point extends GrowthStep {
  /** For all commands or bytes together: seconds, or MB. */
  readonly cost: number;
}

/** Growth of one cost of one load, for all contenders. */
export interface Curve {
  readonly load: GrowingLoad;
  /** "time", "CPU time" or "peak memory". */
  readonly cost: string;
  readonly unit: "s" | "MB";
  /** Whether the cost should grow linearly. Memory should not. */
  readonly proportional: boolean;
  /** From the smallest size to the largest. */
  readonly lines: readonly { readonly contender: Contender; readonly points: readonly Point[] }[];
}

interface Kind {
  readonly load: GrowingLoad;
  /** What the row's name ends with. */
  readonly figure: string;
  readonly cost: string;
  /** Of the whole load, from the row's figure for each part of it. */
  readonly total: (value: number, size: number) => number;
}

const GIB = 2 ** 30;
const CONTENDERS: readonly Contender[] = ["ours", "grpc-go"];
const DATA_LOADS = ["read", "stdout", "stdin"] as const;

const secondsOfExecs = (ms: number, count: number): number => (ms * count) / 1e3;
const secondsOfBytes = (secondsPerGib: number, bytes: number): number => (secondsPerGib * bytes) / GIB;
const asItIs = (megabytes: number): number => megabytes;

const KINDS: readonly Kind[] = [
  { load: "execs", figure: "each", cost: "time", total: secondsOfExecs },
  { load: "execs", figure: "CPU of each", cost: "CPU time", total: secondsOfExecs },
  { load: "execs", figure: "peak memory", cost: "peak memory", total: asItIs },
  ...DATA_LOADS.map((load): Kind => ({ load, figure: "CPU", cost: "CPU time", total: secondsOfBytes })),
  ...DATA_LOADS.map((load): Kind => ({ load, figure: "peak memory", cost: "peak memory", total: asItIs })),
];

function pointsOf(rows: readonly Row[], contender: Contender, { load, figure, total }: Kind): Point[] {
  const points = rows.flatMap((row) => {
    const step = readGrowthName(row.name);
    const value = row.spreads[contender]?.median;
    if (step?.load !== load || step.figure !== figure || value === undefined) return [];
    return [{ load, size: step.size, cost: total(value, step.size) }];
  });
  return points.toSorted((a, b) => a.size - b.size);
}

/** Growth from the rows, without costs measured at fewer than two sizes. */
export function growthCurves(rows: readonly Row[]): Curve[] {
  const curves = KINDS.map((kind): Curve => {
    const lines = CONTENDERS.map((contender) => ({ contender, points: pointsOf(rows, contender, kind) }));
    const isTime = kind.cost.endsWith("time");
    return {
      load: kind.load,
      cost: kind.cost,
      unit: isTime ? "s" : "MB",
      proportional: isTime,
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
    return [{ contender, from, to, loadRatio: to.size / from.size, costRatio: to.cost / from.cost }];
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
