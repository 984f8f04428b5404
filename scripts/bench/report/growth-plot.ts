import type { Row } from "../row.ts";
import { sizeText } from "../rows/growth-names.ts";
import { type Curve, growthCurves, lastSteps, type Point } from "./growth.ts";
import { COLOURS, escapeText, legend, STYLE } from "./style.ts";
import { shortNumber } from "./table.ts";

const WIDTH = 860;
const COLUMNS = 3;
const PANEL = { width: WIDTH / COLUMNS, height: 218 } as const;
/** Of the lines in their panel. */
const AREA = { left: 58, right: 32, top: 48, bottom: 30 } as const;
const TOP = 28;

const TITLES: Readonly<Record<Curve["load"], string>> = {
  execs: "execs at once",
  read: "a file read",
  stdout: "a command's output",
  stdin: "a command's input",
};

function titleOf({ load, cost }: Curve): string {
  return `${cost.charAt(0).toUpperCase()}${cost.slice(1)} of ${TITLES[load]}`;
}

function tickText(value: number, unit: Curve["unit"]): string {
  if (unit === "s" && value < 1) return `${Number((value * 1e3).toPrecision(1))} ms`;
  return `${value} ${unit}`;
}

/** Difference between the largest load's cost and linear growth. */
function stepText(curve: Curve): string {
  const steps = lastSteps(curve);
  const ratios = steps.map(({ contender, costRatio }) => `${contender} ${shortNumber(costRatio)}x`);
  const what = curve.load === "execs" ? "the execs" : "the data";
  return `${shortNumber(steps[0]?.loadRatio ?? NaN)}x ${what}: ${ratios.join(", ")}`;
}

function segment(from: readonly [number, number], to: readonly [number, number], attributes: string): string {
  const [x1, y1, x2, y2] = [...from, ...to].map((value) => value.toFixed(1));
  return `<line x1="${x1}" x2="${x2}" y1="${y1}" y2="${y2}" ${attributes}/>`;
}

/** The line of linear growth from the smallest load: slope 1, until it leaves the panel. */
function proportion({ size, cost }: Point, x: Axis, y: Axis, colour: string | undefined): string {
  const factor = Math.min(x.high / size, y.high / cost);
  return segment(
    [x.at(size), y.at(cost)],
    [x.at(size * factor), y.at(cost * factor)],
    `stroke="${colour}" stroke-dasharray="2 3"`,
  );
}

function panel(curve: Curve, left: number, top: number): string {
  const points = curve.lines.flatMap((line) => line.points);
  const [x0, x1] = [left + AREA.left, left + PANEL.width - AREA.right];
  const [y0, y1] = [top + PANEL.height - AREA.bottom, top + AREA.top];
  const sizes = axisOfValues(
    points.map(({ size }) => size),
    x0,
    x1,
  );
  const costs = axisAround(
    points.map(({ cost }) => cost),
    y0,
    y1,
  );
  const across = costs.ticks.flatMap((tick) => [
    segment([x0, costs.at(tick)], [x1, costs.at(tick)], 'class="tick"'),
    `<text x="${x0 - 6}" y="${(costs.at(tick) + 4).toFixed(1)}" text-anchor="end">${tickText(tick, curve.unit)}</text>`,
  ]);
  const up = sizes.ticks.flatMap((size) => [
    segment([sizes.at(size), y0], [sizes.at(size), y1], 'class="tick"'),
    `<text x="${sizes.at(size).toFixed(1)}" y="${y0 + 16}" text-anchor="middle">${sizeText({ load: curve.load, size })}</text>`,
  ]);
  const lines = curve.lines.map((line) => {
    const colour = COLOURS[line.contender];
    const places = line.points.map(({ size, cost }) => [sizes.at(size).toFixed(1), costs.at(cost).toFixed(1)] as const);
    const path = places.map((pair) => pair.join(",")).join(" ");
    const dots = places.map(([x, y]) => `<circle cx="${x}" cy="${y}" r="4" fill="${colour}"/>`);
    const [first] = line.points;
    const straight = first && curve.proportional ? proportion(first, sizes, costs, colour) : "";
    return `${straight}<polyline points="${path}" fill="none" stroke="${colour}" stroke-width="2"/>${dots.join("")}`;
  });
  return [
    `<text x="${left + 10}" y="${top + 18}" font-weight="bold">${escapeText(titleOf(curve))}</text>`,
    `<text x="${left + 10}" y="${top + 34}" font-size="11">${escapeText(stepText(curve))}</text>`,
    ...across,
    ...up,
    ...lines,
  ].join("\n");
}

/** How each cost grows with the load, a panel for each; all axes are logarithmic. */
export function plotGrowth(rows: readonly Row[]): string {
  const curves = growthCurves(rows);
  const height = TOP + Math.ceil(curves.length / COLUMNS) * PANEL.height;
  const panels = curves.map((curve, index) =>
    panel(curve, (index % COLUMNS) * PANEL.width, TOP + Math.floor(index / COLUMNS) * PANEL.height),
  );
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" font-family="sans-serif" font-size="12">
${STYLE}
${legend(["ours", "grpc-go"], 16)}
<text x="236" y="16">dotted: in exact proportion to the smallest load; both axes are logarithmic</text>
${panels.join("\n")}
</svg>
`;
}

/** A logarithmic axis between two places on the page. */
export interface Axis {
  readonly low: number;
  readonly high: number;
  /** Where there is a line and a label. */
  readonly ticks: readonly number[];
  /** The place of a value on the page. */
  readonly at: (value: number) => number;
}

/** Beyond so many decades, powers of ten are ticks enough. */
const DECADES_WITH_STEPS = 2;

function place(low: number, high: number, from: number, to: number): (value: number) => number {
  const span = Math.log10(high / low);
  return (value) => from + (Math.log10(value / low) / span) * (to - from);
}

/** From the smallest to the largest of these values, each of which is a tick. */
export function axisOfValues(values: readonly number[], from: number, to: number): Axis {
  const ticks = [...new Set(values)].toSorted((a, b) => a - b);
  const low = ticks[0] ?? 1;
  const high = ticks.at(-1) ?? low;
  return { low, high, ticks, at: place(low, high, from, to) };
}

/** Around these values, from one round figure to another. */
export function axisAround(values: readonly number[], from: number, to: number): Axis {
  const least = Math.min(...values);
  const most = Math.max(...values);
  const steps = most / least < 10 ** DECADES_WITH_STEPS ? [1, 2, 5] : [1];
  const round = [];
  for (let power = Math.floor(Math.log10(least)); power <= Math.ceil(Math.log10(most)); power++) {
    round.push(...steps.map((step) => Number(`${step}e${power}`)));
  }
  const low = round.findLast((value) => value <= least) ?? least;
  const high = round.find((value) => value >= most && value > low) ?? most;
  const ticks = round.filter((value) => value >= low && value <= high);
  return { low, high, ticks, at: place(low, high, from, to) };
}
