import { setTimeout as delay } from "node:timers/promises";
import type { Bench } from "../bench.ts";
import { anonymousBytesOf, cpuMsOf, wakeUpsOf } from "../proc.ts";
import { type Contender, makeRow, type Row } from "../row.ts";

const THOUSAND_MINUTES_S = 60_000;

interface Stock {
  readonly wakeUps: number;
  readonly cpuMs: number;
}

/** What every contender does while nobody asks for anything, all at the same time; their clients are gone after this. */
export async function idleRows(bench: Bench): Promise<Row[]> {
  const { idleSeconds: seconds, settleSeconds } = bench.scale;
  bench.say(`idle for ${seconds} s`);
  for (const { load } of bench.contenders.values()) load.close();
  await delay(settleSeconds * 1_000);
  const before = stockOf(bench);
  await delay(seconds * 1_000);
  const after = stockOf(bench);
  const perSecond = (pick: (stock: Stock) => number): Partial<Record<Contender, number[]>> =>
    Object.fromEntries(
      [...before].map(([contender, first]) => {
        const last = after.get(contender);
        return [contender, last === undefined ? [] : [(pick(last) - pick(first)) / seconds]];
      }),
    );
  const cpu = perSecond(({ cpuMs }) => cpuMs);
  return [
    makeRow({
      name: "wake-ups at idle",
      unit: "1/s",
      better: "lower",
      samples: perSecond(({ wakeUps }) => wakeUps),
      goals: [{ relation: "at most", limit: 0 }],
      note: `voluntary context switches over ${seconds} s without a client and without ready_cmd`,
    }),
    makeRow({
      name: "CPU of 1,000 idle minutes",
      unit: "ms",
      better: "lower",
      samples: Object.fromEntries(
        Object.entries(cpu).map(([contender, values]) => [contender, values.map((ms) => ms * THOUSAND_MINUTES_S)]),
      ),
      note: `extrapolated from ${seconds} s`,
    }),
    ...returnRows(bench, settleSeconds + seconds),
  ];
}

function stockOf(bench: Bench): Map<Contender, Stock> {
  return new Map(
    [...bench.contenders].map(([contender, running]) => {
      const pids = running.pids();
      return [contender, { wakeUps: wakeUpsOf(pids), cpuMs: cpuMsOf(pids) }];
    }),
  );
}

function returnRows(bench: Bench, seconds: number): Row[] {
  const now = [...bench.contenders].map(
    ([contender, running]) => [contender, anonymousBytesOf(running.pids())] as const,
  );
  const ratios = now.flatMap(([contender, bytes]) => {
    const atFirst = bench.idleBytes.get(contender);
    return atFirst === undefined ? [] : [[contender, [bytes / atFirst]] as const];
  });
  return [
    makeRow({
      name: `memory ${seconds} s after all loads`,
      unit: "MB",
      better: "lower",
      samples: Object.fromEntries(now.map(([contender, bytes]) => [contender, [bytes / 1e6]])),
    }),
    makeRow({
      name: "the same, times that before all loads",
      unit: "x",
      better: "lower",
      samples: Object.fromEntries(ratios),
      goals: [{ relation: "at most", limit: 1.2 }],
    }),
  ];
}
