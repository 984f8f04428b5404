import type { Bench } from "../bench.ts";
import { type Contender, type Goal, makeRow, type Row } from "../row.ts";

const LIMIT_MB = 64;

/** Anonymous memory before all loads, and the most that was seen during each of those that were measured. */
export function memoryRows({ idleBytes, peaks }: Bench): Row[] {
  const row = (name: string, bytes: ReadonlyMap<Contender, number>, goals: readonly Goal[] = []): Row => {
    const samples = Object.fromEntries([...bytes].map(([contender, value]) => [contender, [value / 1e6]]));
    return makeRow({ name, unit: "MB", samples, goals });
  };
  const most = new Map<Contender, number>();
  for (const [contender, bytes] of [...peaks.values()].flatMap((each) => [...each]))
    most.set(contender, Math.max(most.get(contender) ?? 0, bytes));
  return [
    row("memory before all loads", idleBytes),
    ...[...peaks].map(([name, bytes]) => row(`peak memory: ${name}`, bytes)),
    row("peak memory of all loads", most, [{ relation: "at most", limit: LIMIT_MB }]),
  ];
}
