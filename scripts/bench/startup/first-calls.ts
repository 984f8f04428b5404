import { setTimeout as delay } from "node:timers/promises";
import type { Bench } from "../bench.ts";
import { measure, type Running } from "../contender.ts";
import { openField } from "../field.ts";
import { type Contender, makeRow, type Row, samplesOf } from "../row.ts";

/** The agent warms up once its machine has been idle for a quarter of a second. */
const SETTLE_MS = 1_000;
/** Calls after the first one. */
const NEXT_CALLS = 19;

/** Times of a new server's first calls. */
interface FirstCalls {
  readonly firstMs: number;
  /** Median of the next ones. */
  readonly nextUs: number;
  /** CPU time of the server for all of them. */
  readonly cpuMs: number;
}

/** The first Health of new servers, its connection with the handshake included, and the next ones. */
export async function firstCallsRows(bench: Bench): Promise<Row[]> {
  const servers = bench.scale.coldStarts;
  bench.say(`first calls of ${servers} new servers`);
  const results = new Map<Contender, FirstCalls[]>();
  for (let round = 0; round < servers; round++) {
    await using field = await openField(bench, ["grpc-go", "go-https"]);
    await delay(SETTLE_MS);
    for (const [contender, server] of field.contenders) {
      results.getOrInsert(contender, []).push(await firstCallsOf(server));
    }
  }
  return [
    makeRow({
      name: "first Health of a new agent",
      unit: "ms",
      samples: samplesOf(results, ({ firstMs }) => firstMs),
      goal: { relation: "at most", limit: 6 },
      note: `${SETTLE_MS / 1e3} s after the start; with TCP and TLS. Go HTTPS: HEAD of "/"`,
    }),
    makeRow({ name: "its 2nd to 20th Health, p50", unit: "µs", samples: samplesOf(results, ({ nextUs }) => nextUs) }),
    makeRow({
      name: "CPU of its first 20 Health calls",
      unit: "ms",
      samples: samplesOf(results, ({ cpuMs }) => cpuMs),
    }),
  ];
}

async function firstCallsOf(server: Running): Promise<FirstCalls> {
  const first = await measure(server, { kind: "ping", count: 1 });
  const next = await measure(server, { kind: "ping", count: NEXT_CALLS });
  return { firstMs: first.latency.p50Us / 1e3, nextUs: next.latency.p50Us, cpuMs: first.cpuMs + next.cpuMs };
}
