import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeRow, type Row, type Samples } from "./row.ts";

/**
 * Ratios to grpc-go that were measured on a quiet machine, by the row's name. Those of a command's input are an AMD
 * EPYC's: on Intel they were 0.36 and 0.39.
 */
export type Recorded = Readonly<Record<string, number>>;

/** A row that has become clearly worse. */
export interface Loss {
  readonly row: string;
  readonly recorded: number;
  readonly now: number;
}

/** A row is lost when its ratio to the peer is this many times the recorded one. */
const TOLERANCE = 1.4;
/**
 * The same on a busy machine: the ratio of a file read was 1.1 on a quiet one and 1.5 at a load of 45. Servers that use
 * more threads than one, or have more to keep in a core's cache, suffer differently.
 */
const BUSY_TOLERANCE = 2;
/** A higher load average for each core comes from others too. */
const OWN_LOAD = 2.5;
/** The peer of the ratios. */
export const GUARD_PEER = "grpc-go";
const FILE = join(import.meta.dirname, "recorded.json");

/**
 * CPU time is steady, except a terminal's. The kernel passes a terminal's output on in steps of 4 KiB or more,
 * depending on where its own thread runs. One build took 0.48 to 1.11 times the peer's. What a caller waits for is not
 * steady. On a busy machine the median of Health rose from 1.4 times the peer's to 3 times: the agent's single thread
 * waits for a core more often.
 */
function isGuarded({ name, unit, ratios }: Row): boolean {
  const isSteady = name.startsWith("CPU of ") || (unit === "s/GiB" && !name.startsWith("terminal"));
  return ratios[GUARD_PEER] !== undefined && isSteady;
}

/**
 * Our CPU time as a multiple of the peer's, each the least of its rounds: other work on the machine only ever adds to
 * it. Beside other work the ratio of medians has grown by 1.7. The ratio of the least values of a file write was 0.88
 * to 1.05 in four runs.
 */
function burden({ samples }: Row): number {
  return leastOf(samples.ours) / leastOf(samples[GUARD_PEER]);
}

function leastOf(values: readonly number[] = []): number {
  return Math.min(...values);
}

/** The rows with the rounds of a second run. */
export function together(rows: readonly Row[], again: readonly Row[]): Row[] {
  return rows.map((row) => {
    const more = again.find(({ name }) => name === row.name)?.samples ?? {};
    const samples: Samples = Object.fromEntries(
      Object.entries(row.samples).map(([contender, values]) => [
        contender,
        [...values, ...(more[contender as keyof Samples] ?? [])],
      ]),
    );
    return makeRow({ ...row, ...(row.verdict && { goal: row.verdict }), samples });
  });
}

/** The ratios that later runs are compared with. */
export function ratiosOf(rows: readonly Row[]): Recorded {
  return Object.fromEntries(rows.filter(isGuarded).map((row) => [row.name, Number(burden(row).toPrecision(3))]));
}

/** The rows that are clearly worse than recorded. `load` is the load average of each core. */
export function lossesAgainst(recorded: Recorded, rows: readonly Row[], load: number): Loss[] {
  const tolerance = load > OWN_LOAD ? BUSY_TOLERANCE : TOLERANCE;
  return rows.filter(isGuarded).flatMap((row) => {
    const before = recorded[row.name];
    const now = burden(row);
    return before !== undefined && now > before * tolerance ? [{ row: row.name, recorded: before, now }] : [];
  });
}

/** The recorded ratios. */
export function readRecorded(): Recorded {
  return JSON.parse(readFileSync(FILE, "utf8")) as Recorded;
}

/** Records these rows. */
export function writeRecorded(rows: readonly Row[]): void {
  writeFileSync(FILE, `${JSON.stringify(ratiosOf(rows), undefined, 2)}\n`);
}
