import type { Bench } from "../bench.ts";
import { startBuiltAgent } from "../peers/peers.ts";
import { makeRow, type Row } from "../row.ts";

/** The restore duties of an agent of its own: they end the connections of others. Without a clock step. */
export async function dutiesRows(bench: Bench): Promise<Row[]> {
  bench.say("restore duties");
  await using running = await startBuiltAgent(bench.native, bench.agentProgram);
  const milliseconds: number[] = [];
  for (let round = 0; round < bench.scale.duties; round++) {
    const { latency } = await running.load.run({ kind: "duties" });
    milliseconds.push(latency.p50Us / 1e3);
    // The duties let their own connection finish, and it accepts no more calls.
    await running.load.run({ kind: "redial" });
    await running.load.run({ kind: "ping" });
  }
  return [
    makeRow({
      name: "restore duties",
      unit: "ms",
      samples: { ours: milliseconds },
      note: "64 bytes of entropy, CRNG reseed, credentials read anew; no clock step",
    }),
  ];
}
