import type { Bench } from "../bench.ts";
import { type Contender, type Goal, makeRow, type Row } from "../row.ts";

const LIMIT_MB = 64;

function megabytes(bytes: ReadonlyMap<Contender, number>): Partial<Record<Contender, number[]>> {
  return Object.fromEntries([...bytes].map(([contender, value]) => [contender, [value / 1e6]]));
}

/** Peak of each contender over all loads. */
function overall(bench: Bench): Map<Contender, number> {
  const most = new Map<Contender, number>();
  for (const peaks of bench.peaks.values()) {
    for (const [contender, bytes] of peaks) most.set(contender, Math.max(most.get(contender) ?? 0, bytes));
  }
  return most;
}

/** Anonymous memory before all loads, and the most that was seen during each of those that were measured. */
export function memoryRows(bench: Bench): Row[] {
  const row = (name: string, bytes: ReadonlyMap<Contender, number>, goals: readonly Goal[] = []): Row =>
    makeRow({ name, unit: "MB", better: "lower", samples: megabytes(bytes), goals });
  return [
    row("memory before all loads", bench.idleBytes),
    ...[...bench.peaks].map(([name, bytes]) => row(`peak memory: ${name}`, bytes)),
    row("peak memory of all loads", overall(bench), [{ relation: "at most", limit: LIMIT_MB }]),
  ];
}
