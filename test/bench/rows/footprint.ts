import { dirname } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { measureFootprint } from "../../vm/harness/footprint.ts";
import { type Bench, canBoot } from "../bench.ts";
import type { Running } from "../contender.ts";
import { anonymousBytesOf, wakeUpsOf } from "../../fixtures/proc.ts";
import { type Contender, type Goal, makeRow, type Row, type Samples, samplesOf } from "../row.ts";

const MB = 1e6;

/** A row of bytes, and our limit. */
function megabytesRow(name: string, bytes: Samples, limitMb?: number, note = ""): Row {
  const entries = Object.entries(bytes).map(([contender, values]) => [contender, values.map((value) => value / MB)]);
  const goal: Goal | undefined = limitMb === undefined ? undefined : { relation: "at most", limit: limitMb };
  return makeRow({ name, unit: "MB", samples: Object.fromEntries(entries) as Samples, ...(goal && { goal }), note });
}

/** What every contender uses while idle, measured at the same time; their clients are gone after this. */
export async function idleRows(bench: Bench): Promise<Row[]> {
  const { idleSeconds: seconds, settleSeconds } = bench.scale;
  bench.say(`idle for ${seconds} s`);
  for (const { load } of bench.contenders.values()) await load?.[Symbol.asyncDispose]();
  await delay(settleSeconds * 1_000);
  const before = [...bench.contenders].map(([contender, running]) => ({ contender, running, stock: stockOf(running) }));
  await delay(seconds * 1_000);
  const rests = new Map(
    before.map(({ contender, running, stock }) => {
      const now = stockOf(running);
      const rest = {
        wakeUpsASecond: (now.wakeUps - stock.wakeUps) / seconds,
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
      goal: { relation: "at most", limit: 0 },
      note: `voluntary context switches over ${seconds} s without a client and without ready_cmd`,
    }),
    megabytesRow(
      `memory ${settleSeconds + seconds} s after all loads`,
      samplesOf(rests, ({ bytes }) => bytes),
    ),
    makeRow({
      name: "the same, times that before all loads",
      unit: "x",
      samples: samplesOf(rests, ({ timesAtFirst }) => timesAtFirst),
      goal: { relation: "at most", limit: 1.2 },
    }),
  ];
}

function stockOf(running: Running): { readonly wakeUps: number; readonly bytes: number } {
  const pids = running.pids();
  return { wakeUps: wakeUpsOf(pids), bytes: anonymousBytesOf(pids) };
}

/** Anonymous memory before all loads, and the most that was seen during those that were measured. */
export function memoryRows({ idleBytes, peaks }: Bench): Row[] {
  const samples = (bytes: ReadonlyMap<Contender, number>): Samples =>
    Object.fromEntries([...bytes].map(([contender, value]) => [contender, [value]]));
  return [
    megabytesRow("memory before all loads", samples(idleBytes)),
    megabytesRow("peak memory of all loads", samples(peaks), 64),
  ];
}

/** What the agent adds to an idle guest: two microVMs that differ only in the agent. No rows without QEMU. */
export async function snapshotRows(bench: Bench): Promise<Row[]> {
  if (!canBoot(bench, "share of a snapshot")) return [];
  const { withBytes, withoutBytes, afterStart, atSnapshot } = await measureFootprint(dirname(bench.agentProgram));
  const row = (name: string, bytes: number, limitMb: number, note: string): Row =>
    megabytesRow(name, { ours: [bytes] }, limitMb, note);
  const resident = atSnapshot.anonymousBytes + atSnapshot.mappedBytes;
  const guests = `QEMU wrote ${(withBytes / MB).toFixed(0)} MB with it and ${(withoutBytes / MB).toFixed(0)} MB without`;
  return [
    row("share of an idle guest's snapshot", withBytes - withoutBytes, 48, `${guests}, zero pages skipped; Linux 6.12`),
    row("page cache of the directory after a cold start", afterStart.cachedBytes, 28, "after the first Health"),
    row(
      "resident at PRE_SNAPSHOT",
      resident,
      36,
      "after a rest; anonymous, and pages of the directory in the page cache",
    ),
  ];
}
