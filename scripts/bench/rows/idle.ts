import { setTimeout as delay } from "node:timers/promises";
import type { Bench } from "../bench.ts";
import type { Running } from "../contender.ts";
import { anonymousBytesOf, cpuMsOf, wakeUpsOf } from "../proc.ts";
import { makeRow, type Row, samplesOf } from "../row.ts";

const THOUSAND_MINUTES_S = 60_000;

/** What every contender does while nobody asks for anything, all at the same time; their clients are gone after this. */
export async function idleRows(bench: Bench): Promise<Row[]> {
  const { idleSeconds: seconds, settleSeconds } = bench.scale;
  bench.say(`idle for ${seconds} s`);
  for (const { load } of bench.contenders.values()) await load[Symbol.asyncDispose]();
  await delay(settleSeconds * 1_000);
  const before = [...bench.contenders].map(([contender, running]) => ({ contender, running, stock: stockOf(running) }));
  await delay(seconds * 1_000);
  const rests = new Map(
    before.map(({ contender, running, stock }) => {
      const now = stockOf(running);
      const rest = {
        wakeUpsASecond: (now.wakeUps - stock.wakeUps) / seconds,
        cpuMsASecond: (now.cpuMs - stock.cpuMs) / seconds,
        bytes: now.bytes,
        timesAtFirst: now.bytes / (bench.idleBytes.get(contender) ?? NaN),
      };
      return [contender, [rest]] as const;
    }),
  );
  return [
    makeRow({
      name: "wake-ups at idle",
      unit: "1/s",
      samples: samplesOf(rests, ({ wakeUpsASecond }) => wakeUpsASecond),
      goals: [{ relation: "at most", limit: 0 }],
      note: `voluntary context switches over ${seconds} s without a client and without ready_cmd`,
    }),
    makeRow({
      name: "CPU of 1,000 idle minutes",
      unit: "ms",
      samples: samplesOf(rests, ({ cpuMsASecond }) => cpuMsASecond * THOUSAND_MINUTES_S),
      note: `extrapolated from ${seconds} s`,
    }),
    makeRow({
      name: `memory ${settleSeconds + seconds} s after all loads`,
      unit: "MB",
      samples: samplesOf(rests, ({ bytes }) => bytes / 1e6),
    }),
    makeRow({
      name: "the same, times that before all loads",
      unit: "x",
      samples: samplesOf(rests, ({ timesAtFirst }) => timesAtFirst),
      goals: [{ relation: "at most", limit: 1.2 }],
    }),
  ];
}

function stockOf(running: Running): { readonly wakeUps: number; readonly cpuMs: number; readonly bytes: number } {
  const pids = running.pids();
  return { wakeUps: wakeUpsOf(pids), cpuMs: cpuMsOf(pids), bytes: anonymousBytesOf(pids) };
}
