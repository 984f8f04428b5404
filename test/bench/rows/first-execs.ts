import { setTimeout as delay } from "node:timers/promises";
import { postJson } from "../../fixtures/declare-idle.ts";
import { anonymousBytesOf, cpuMsOf } from "../../fixtures/proc.ts";
import { type Bench, sideBySide } from "../bench.ts";
import { clientOf, type Job, type Measurement } from "../contender.ts";
import { openField } from "../field.ts";
import { type Contender, makeRow, type Row, samplesOf } from "../row.ts";

const PEER = "grpc-go";
const CONTENDERS = ["ours", PEER] as const;
const NAME = "first 100 execs";
const FIRST: Job = { kind: "run", command: ["/bin/true"], count: 100 };
/** As many commands as the agent runs at once: for the peak of all loads. */
const MOST: Job = { ...FIRST, count: 512, atOnce: 256 };

/** The first commands of servers that were just started: a new one compiles what it runs. */
export async function firstExecRows(bench: Bench): Promise<Row[]> {
  const runs = new Map<Contender, Measurement[]>();
  for (let server = 0; server < bench.scale.newServers; server++) {
    await using field = await openField(bench, [PEER]);
    const fresh = { ...bench, ...field };
    const once = { name: NAME, contenders: CONTENDERS, rounds: 1 };
    for (const [contender, measured] of await sideBySide(fresh, once, () => FIRST))
      runs.getOrInsert(contender, []).push(...measured);
    if (server > 0) continue;
    await sideBySide(fresh, { ...once, name: `${MOST.atOnce} execs at once` }, () => MOST);
  }
  return [
    makeRow({
      name: `${NAME}: each`,
      unit: "ms",
      samples: samplesOf(runs, ({ seconds, operations }) => (seconds * 1e3) / operations),
    }),
    makeRow({
      name: `${NAME}: CPU of each`,
      unit: "ms",
      samples: samplesOf(runs, ({ cpuMs, operations }) => cpuMs / operations),
      goal: { peer: PEER, relation: "at most", limit: 1.6 },
    }),
  ];
}

/** The agent warms up once its machine has been idle for a quarter of a second. */
const SETTLE_MS = 1_000;

/** The first Health of new servers, its connection with the handshake included, and then their first command. */
export async function firstCallRows(bench: Bench): Promise<Row[]> {
  const servers = bench.scale.firstCalls;
  bench.say(`first calls of ${servers} new servers`);
  const healths: Partial<Record<Contender, number[]>> = {};
  const commands: Partial<Record<Contender, number[]>> = {};
  for (let round = 0; round < servers; round++) {
    await using field = await openField(bench, ["grpc-go"]);
    await delay(SETTLE_MS);
    for (const [contender, running] of field.contenders) {
      for (const [samples, job] of [
        [healths, { kind: "ping" }],
        [commands, { ...FIRST, count: 1 }],
      ] as const) {
        const { latency } = await clientOf(running).run(job);
        (samples[contender] ??= []).push((latency?.p50Us ?? NaN) / 1e3);
      }
    }
  }
  return [
    makeRow({
      name: "first Health of a new agent",
      unit: "ms",
      samples: healths,
      goal: { relation: "at most", limit: 6 },
      note: `${SETTLE_MS / 1e3} s after the start; with TCP and TLS`,
    }),
    makeRow({ name: "first command of a new agent", unit: "ms", samples: commands, note: "after that Health" }),
  ];
}

/** The first DeclareIdle of new agents, before any other call: it loads HTTP and makes the connection. */
export async function declareIdleRows(bench: Bench): Promise<Row[]> {
  const [cpuMs, megabytes]: [number[], number[]] = [[], []];
  for (let round = 0; round < bench.scale.firstCalls; round++) {
    await using field = await openField(bench, []);
    await delay(SETTLE_MS);
    const pids = field.contenders.get("ours")?.pids() ?? [];
    const [usedMs, usedBytes] = [cpuMsOf(...pids), anonymousBytesOf(pids)];
    await postJson(field.workloadSocket);
    cpuMs.push(cpuMsOf(...pids) - usedMs);
    megabytes.push((anonymousBytesOf(pids) - usedBytes) / 1e6);
  }
  const name = "first DeclareIdle of a new agent";
  const note = "until its answer; JSON over HTTP/1.1";
  return [
    makeRow({
      name: `${name}: CPU`,
      unit: "ms",
      samples: { ours: cpuMs },
      goal: { relation: "at most", limit: 5 },
      note,
    }),
    makeRow({
      name: `${name}: memory`,
      unit: "MB",
      samples: { ours: megabytes },
      goal: { relation: "at most", limit: 0.5 },
    }),
  ];
}
