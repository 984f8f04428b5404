/** The contenders, in the order of their columns. */
export const CONTENDERS = ["ours", "node-net", "grpc-go", "openssh", "exec-tar", "before"] as const;

/** A contender's name. */
export type Contender = (typeof CONTENDERS)[number];

/** All contenders but the agent. */
export type Peer = Exclude<Contender, "ours">;

/** One value for each round that a contender was measured in, in the order of the rounds. */
export type Samples = Readonly<Partial<Record<Contender, readonly number[]>>>;

/** A row's goal: a bound on our value as a multiple of the peer's, or an absolute bound. */
export interface Goal {
  /** Undefined: `limit` is a bound on our own value, in the row's unit. */
  readonly peer?: Peer;
  readonly relation: "at most" | "at least";
  readonly limit: number;
}

/** A goal and its result. */
export interface Verdict extends Goal {
  /** The value compared with the limit. */
  readonly actual: number;
  readonly met: boolean;
}

/** Input of a row. */
export interface RowSpec {
  readonly name: string;
  readonly unit: string;
  /** Which direction is better. Default: lower. */
  readonly better?: "lower" | "higher";
  readonly samples: Samples;
  /** Left out where its peer was not measured. */
  readonly goal?: Goal;
  /** A note for the reader. */
  readonly note?: string;
}

/** One line of the table. */
export interface Row extends Omit<RowSpec, "goal"> {
  readonly spreads: Readonly<Partial<Record<Contender, { readonly median: number }>>>;
  /** Our value divided by the peer's: the median over the rounds, each measured side by side. */
  readonly ratios: Readonly<Partial<Record<Peer, number>>>;
  readonly verdict?: Verdict;
}

/** Computes a row from its samples. */
export function makeRow({ goal, ...spec }: RowSpec): Row {
  const { samples } = spec;
  const entries = Object.entries(samples) as [Contender, readonly number[]][];
  const measured = entries.filter(([, values]) => values.length > 0);
  const ratios: Partial<Record<Peer, number>> = {};
  for (const [contender, values] of measured) {
    const ratio = pairedRatio(samples.ours ?? [], values);
    if (contender !== "ours" && ratio !== undefined) ratios[contender] = ratio;
  }
  const spreads = Object.fromEntries(measured.map(([contender, values]) => [contender, { median: median(values) }]));
  const verdict = goal && judge(goal, ratios, spreads["ours"]);
  return { ...spec, spreads, ratios, ...(verdict && { verdict }) };
}

/** One figure of each measurement; the contenders without any are left out. */
export function samplesOf<Measured>(
  runs: ReadonlyMap<Contender, readonly Measured[]>,
  pick: (measured: Measured) => number | undefined,
): Samples {
  const entries = [...runs].map(
    ([contender, all]) => [contender, all.map(pick).filter((value) => value !== undefined)] as const,
  );
  return Object.fromEntries(entries.filter(([, values]) => values.length > 0));
}

/** The median of the rounds' own ratios; of the medians where the rounds do not pair up. */
function pairedRatio(ours: readonly number[], theirs: readonly number[]): number | undefined {
  if (ours.length === 0 || theirs.length === 0) return undefined;
  const pairs = ours.length === theirs.length ? ours.map((value, round) => value / (theirs[round] ?? 0)) : [];
  const ratio = pairs.length > 0 ? median(pairs) : median(ours) / median(theirs);
  return Number.isFinite(ratio) ? ratio : undefined;
}

function judge(goal: Goal, ratios: Row["ratios"], ours: { readonly median: number } | undefined): Verdict | undefined {
  const actual = goal.peer === undefined ? ours?.median : ratios[goal.peer];
  if (actual === undefined) return undefined;
  return { ...goal, actual, met: goal.relation === "at most" ? actual <= goal.limit : actual >= goal.limit };
}

/** The middle value; of an even number the mean of the two in the middle. NaN of none. */
function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length / 2;
  const upper = sorted[Math.floor(middle)] ?? NaN;
  return Number.isInteger(middle) ? ((sorted[middle - 1] ?? NaN) + upper) / 2 : upper;
}
