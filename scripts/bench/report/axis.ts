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
