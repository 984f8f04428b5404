import { type Bench, sideBySide } from "../bench.ts";
import type { Job } from "../contender.ts";
import { makeRow, type Row, samplesOf } from "../row.ts";
import { type TransferGoals, transferRows } from "./streams.ts";

const CHUNK_BYTES = 64 * 1024;
const CONTENDERS = ["ours", "openssh"] as const;
/** Beside `ssh -L`, which carries its bytes as these do: through one process, with encryption, to a port of the loopback. */
const GOALS: TransferGoals = { peer: "openssh", throughput: 1.5, cpu: 0.7 };

/** A tunnel's bytes at speed, out of the guest and into it, and one byte there and back. */
export async function tunnelRows(bench: Bench): Promise<Row[]> {
  const { streamBytes, roundTrips } = bench.scale;
  const rows: Row[] = [];
  for (const [direction, kind] of [
    ["out of a port", "tunnel-out"],
    ["into a port", "tunnel-in"],
  ] as const) {
    const job: Job = { kind, totalBytes: streamBytes, chunkBytes: CHUNK_BYTES, probe: true };
    const name = `tunnel ${direction}`;
    rows.push(...transferRows(name, GOALS, await sideBySide(bench, { name, contenders: CONTENDERS }, () => job)));
  }
  const name = "one byte through a tunnel and back";
  const runs = await sideBySide(bench, { name, contenders: CONTENDERS }, () => ({
    kind: "tunnel-echo",
    count: roundTrips,
  }));
  for (const contender of CONTENDERS) await bench.contenders.get(contender)?.load.run({ kind: "release" });
  const [p50, p99] = [samplesOf(runs, ({ latency }) => latency.p50Us), samplesOf(runs, ({ latency }) => latency.p99Us)];
  return [
    ...rows,
    makeRow({ name: `${name}, p50`, unit: "µs", samples: p50 }),
    makeRow({ name: `${name}, p99`, unit: "µs", samples: p99 }),
  ];
}
