import { setTimeout as delay } from "node:timers/promises";
import type { Bench } from "../bench.ts";
import { clientOf } from "../contender.ts";
import { openField } from "../field.ts";
import { type Contender, makeRow, type Row } from "../row.ts";

/** The agent warms up once its machine has been idle for a quarter of a second. */
const SETTLE_MS = 1_000;

/** The first Health of new servers, its connection with the handshake included. */
export async function firstCallRows(bench: Bench): Promise<Row[]> {
  const servers = bench.scale.firstCalls;
  bench.say(`first calls of ${servers} new servers`);
  const samples: Partial<Record<Contender, number[]>> = {};
  for (let round = 0; round < servers; round++) {
    await using field = await openField(bench, ["grpc-go"]);
    await delay(SETTLE_MS);
    for (const [contender, running] of field.contenders) {
      const { latency } = await clientOf(running).run({ kind: "ping" });
      (samples[contender] ??= []).push((latency?.p50Us ?? NaN) / 1e3);
    }
  }
  return [
    makeRow({
      name: "first Health of a new agent",
      unit: "ms",
      samples,
      goal: { relation: "at most", limit: 6 },
      note: `${SETTLE_MS / 1e3} s after the start; with TCP and TLS`,
    }),
  ];
}
