import type { Row } from "../row.ts";
import { type Curve, growthCurves, lastSteps, type Point, sizeText } from "./growth.ts";
import { COLOURS, dot, legend, line, picture, type Place, text } from "./svg.ts";
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

function tickText(value: number, { proportional }: Curve): string {
  if (!proportional) return `${value} MB`;
  return value < 1 ? `${Number((value * 1e3).toPrecision(1))} ms` : `${value} s`;
}

/** Difference between the largest load's cost and linear growth. */
function stepText(curve: Curve): string {
  const steps = lastSteps(curve);
  const ratios = steps.map(({ contender, costRatio }) => `${contender} ${shortNumber(costRatio)}x`);
  const what = curve.load === "execs" ? "the execs" : "the data";
  return `${shortNumber(steps[0]?.loadRatio ?? NaN)}x ${what}: ${ratios.join(", ")}`;
}

/** The line of linear growth from the smallest load: slope 1, until it leaves the panel. */
function proportion({ size, total }: Point, x: Axis, y: Axis, colour: string | undefined): string {
  const factor = Math.min(x.high / size, y.high / total);
  const end: Place = [x.at(size * factor), y.at(total * factor)];
  return line([x.at(size), y.at(total)], end, `stroke="${colour}" stroke-dasharray="2 3"`);
}

function panel(curve: Curve, left: number, top: number): string[] {
  const points = curve.lines.flatMap((each) => each.points);
  const [x0, x1] = [left + AREA.left, left + PANEL.width - AREA.right];
  const [y0, y1] = [top + PANEL.height - AREA.bottom, top + AREA.top];
  const [sizes, totals] = [points.map(({ size }) => size), points.map(({ total }) => total)];
  const x = axisOfValues(sizes, x0, x1);
  const y = axisAround(totals, y0, y1);
  const across = y.ticks.flatMap((tick) => [
    line([x0, y.at(tick)], [x1, y.at(tick)], 'class="tick"'),
    text([x0 - 6, y.at(tick) + 4], tickText(tick, curve), 'text-anchor="end"'),
  ]);
  const up = x.ticks.flatMap((size) => [
    line([x.at(size), y0], [x.at(size), y1], 'class="tick"'),
    text([x.at(size), y0 + 16], sizeText({ load: curve.load, size }), 'text-anchor="middle"'),
  ]);
  const lines = curve.lines.flatMap(({ contender, points: own }) => {
    const colour = COLOURS[contender];
    const places = own.map(({ size, total }): Place => [x.at(size), y.at(total)]);
    const path = places.map((place) => place.map((value) => value.toFixed(1)).join(",")).join(" ");
    const [first] = own;
    return [
      ...(first && curve.proportional ? [proportion(first, x, y, colour)] : []),
      `<polyline points="${path}" fill="none" stroke="${colour}" stroke-width="2"/>`,
      ...places.map((place) => dot(place, contender, 4)),
    ];
  });
  return [
    text([left + 10, top + 18], titleOf(curve), 'font-weight="bold"'),
    text([left + 10, top + 34], stepText(curve), 'font-size="11"'),
    ...across,
    ...up,
    ...lines,
  ];
}

/** How each cost grows with the load, a panel for each; all axes are logarithmic. */
export function plotGrowth(rows: readonly Row[]): string {
  const curves = growthCurves(rows);
  const panels = curves.flatMap((curve, index) =>
    panel(curve, (index % COLUMNS) * PANEL.width, TOP + Math.floor(index / COLUMNS) * PANEL.height),
  );
  const key = "dotted: in exact proportion to the smallest load; both axes are logarithmic";
  const height = TOP + Math.ceil(curves.length / COLUMNS) * PANEL.height;
  return picture(WIDTH, height, [...legend(["ours", "grpc-go"], 16), text([236, 16], key), ...panels]);
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

function axis(ticks: readonly number[], from: number, to: number): Axis {
  const low = ticks[0] ?? 1;
  const high = ticks.at(-1) ?? low;
  const at = (value: number): number => from + (Math.log10(value / low) / Math.log10(high / low)) * (to - from);
  return { low, high, ticks, at };
}

/** From the smallest to the largest of these values, each of which is a tick. */
export function axisOfValues(values: readonly number[], from: number, to: number): Axis {
  const ticks = [...new Set(values)].toSorted((a, b) => a - b);
  return axis(ticks, from, to);
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
  const first = round.findLastIndex((value) => value <= least);
  const last = round.findIndex((value, index) => value >= most && index > first);
  return axis(round.slice(first, last + 1), from, to);
}
