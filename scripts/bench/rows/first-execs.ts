import { rmSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Bench, type Runs, sideBySide, warmUp } from "../bench.ts";
import type { Job, Measurement } from "../contender.ts";
import { openField } from "../field.ts";
import { DATA_LOADS, nameOfStep } from "../report/growth.ts";
import { type Contender, type Goal, type GrowthStep, makeRow, type Row, samplesOf } from "../row.ts";
import { cpuOfGib, READER, writer } from "./streams.ts";

const MIB = 2 ** 20;
const GIB = 2 ** 30;
const CHUNK_BYTES = 256 * 1024;
const PEER = "grpc-go";
const CONTENDERS = ["ours", PEER] as const;
/** A small transfer ends before its CPU time can be read, so many are done: this many bytes together. */
const LEAST_BYTES = 64 * MIB;
/** In rows of their own, because a new server compiles what it runs. Few, because memory counts from here on. */
const FIRST_EXECS: Job = { kind: "run", command: ["/bin/true"], count: 100 };
const FIRST_EXECS_NAME = "first 100 execs";

/** A step on servers that were just started: the most memory that is seen is that of this step alone. */
async function startedAfresh(bench: Bench, step: (bench: Bench) => Promise<Row[]>): Promise<Row[]> {
  await using field = await openField(bench, [PEER]);
  return await step({ ...bench, ...field });
}

/** @param first gets what the first commands of each server take, which later ones do not */
async function execGrowth(bench: Bench, atOnce: number, first: Map<Contender, Measurement[]>): Promise<Row[]> {
  const step: GrowthStep = { load: "execs", size: atOnce };
  const once = { name: FIRST_EXECS_NAME, contenders: CONTENDERS, rounds: 1 };
  for (const [contender, runs] of await sideBySide(bench, once, () => FIRST_EXECS))
    first.getOrInsert(contender, []).push(...runs);
  const job: Job = { kind: "run", command: ["/bin/true"], count: Math.max(bench.scale.execs, 2 * atOnce), atOnce };
  const runs = await sideBySide(bench, { name: nameOfStep(step), contenders: CONTENDERS }, () => job);
  const [time, cpu] = costRows(nameOfStep(step), runs);
  return [
    { ...time, growth: { ...step, cost: "time" } },
    { ...cpu, growth: { ...step, cost: "CPU time" } },
    peakRow(step, runs),
  ];
}

function costRows(name: string, runs: Runs, cpuGoal?: Goal): [time: Row, cpu: Row] {
  const time = samplesOf(runs, ({ seconds, operations }) => (seconds * 1e3) / operations);
  const cpu = samplesOf(runs, ({ cpuMs, operations }) => cpuMs / operations);
  return [
    makeRow({ name: `${name}: each`, unit: "ms", samples: time }),
    makeRow({ name: `${name}: CPU of each`, unit: "ms", samples: cpu, ...(cpuGoal && { goal: cpuGoal }) }),
  ];
}

function peakRow(step: GrowthStep, runs: Runs): Row {
  return makeRow({
    name: `${nameOfStep(step)}: peak memory`,
    unit: "MB",
    samples: samplesOf(runs, ({ peakBytes }) => peakBytes / 1e6),
    growth: { ...step, cost: "peak memory" },
  });
}

function jobOf({ load, size }: GrowthStep, path: string): Job {
  const count = Math.ceil(LEAST_BYTES / size);
  if (load === "read") return { kind: "read", path, count };
  if (load === "stdout") return { kind: "run", command: writer(size, CHUNK_BYTES), count };
  return { kind: "feed", command: READER, totalBytes: size, chunkBytes: CHUNK_BYTES, count };
}

function makeSparse(path: string, sizeBytes: number): void {
  writeFileSync(path, "");
  truncateSync(path, sizeBytes);
}

async function dataGrowth(bench: Bench, step: GrowthStep): Promise<Row[]> {
  const path = join(bench.folder, "sparse");
  makeSparse(path, MIB);
  await warmUp(bench, jobOf({ ...step, size: MIB }, path));
  makeSparse(path, step.size);
  const name = nameOfStep(step);
  const rounds = step.size > GIB ? 1 : bench.scale.rounds;
  const runs = await sideBySide(bench, { name, contenders: CONTENDERS, rounds }, () => jobOf(step, path));
  rmSync(path);
  const growth = { ...step, cost: "CPU time" } as const;
  return [makeRow({ name: `${name}: CPU`, unit: "s/GiB", samples: cpuOfGib(runs), growth }), peakRow(step, runs)];
}

/** The same at one, ten, a hundred: a cost that stays the same for each is a straight line for all. */
export async function growthRows(bench: Bench): Promise<Row[]> {
  const { growthExecs, growthBytes } = bench.scale;
  const rows: Row[] = [];
  const first = new Map<Contender, Measurement[]>();
  for (const atOnce of growthExecs) {
    rows.push(...(await startedAfresh(bench, (fresh) => execGrowth(fresh, atOnce, first))));
  }
  rows.unshift(...costRows(FIRST_EXECS_NAME, first, { peer: PEER, relation: "at most", limit: 1.6 }));
  for (const size of growthBytes) {
    for (const load of DATA_LOADS) {
      rows.push(...(await startedAfresh(bench, (fresh) => dataGrowth(fresh, { load, size }))));
    }
  }
  return rows;
}
