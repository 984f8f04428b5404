import { closeSync, ftruncateSync, openSync, rmSync } from "node:fs";
import { join } from "node:path";
import { type Bench, type Runs, samplesOf, sideBySide } from "../bench.ts";
import { openField } from "../field.ts";
import type { Job } from "../load.ts";
import { makeRow, type Row } from "../row.ts";
import { type GrowthStep, nameOfStep } from "./growth-names.ts";
import { READER, writer } from "./streams.ts";

const MIB = 2 ** 20;
const GIB = 2 ** 30;
const CHUNK_BYTES = 256 * 1024;
const PEER = "grpc-go";
const CONTENDERS = ["ours", PEER] as const;
/** A small transfer is over before its CPU time can be read: so many are done that together they are this long. */
const LEAST_BYTES = 64 * MIB;
/** Rows of their own: a server that was just started compiles what it runs. Few, as memory is told from here on. */
const FIRST_EXECS: Job = { kind: "run", command: ["/bin/true"], count: 100 };
const FIRST_EXECS_NAME = "first 100 execs";
const DATA_LOADS = ["read", "stdout", "stdin"] as const;

/** A step on servers that were just started: the most memory that is seen is that of this step alone. */
async function startedAfresh(bench: Bench, step: (bench: Bench) => Promise<Row[]>): Promise<Row[]> {
  const { native, agentProgram, say } = bench;
  await using field = await openField({ native, agentProgram, peers: [PEER], say });
  return await step({ ...bench, ...field });
}

async function runEach(bench: Bench, job: Job): Promise<void> {
  for (const { load } of bench.contenders.values()) await load.run(job);
}

async function execGrowth(bench: Bench, atOnce: number, firstRuns: Runs[]): Promise<Row[]> {
  const name = nameOfStep({ load: "execs", size: atOnce });
  const job: Job = { kind: "run", command: ["/bin/true"], count: Math.max(bench.scale.execs, 2 * atOnce), atOnce };
  firstRuns.push(
    await sideBySide(bench, { name: FIRST_EXECS_NAME, contenders: CONTENDERS, rounds: 1 }, () => FIRST_EXECS),
  );
  const runs = await sideBySide(bench, { name, contenders: CONTENDERS }, () => job);
  return [...costRows(name, runs), peakRow(name, runs)];
}

function costRows(name: string, runs: Runs): Row[] {
  return [
    makeRow({
      name: `${name}: each`,
      unit: "ms",
      better: "lower",
      samples: samplesOf(runs, ({ seconds, operations }) => (seconds * 1e3) / operations),
    }),
    makeRow({
      name: `${name}: CPU of each`,
      unit: "ms",
      better: "lower",
      samples: samplesOf(runs, ({ cpuMs, operations }) => cpuMs / operations),
    }),
  ];
}

function together(runs: readonly Runs[]): Runs {
  const all = CONTENDERS.map((contender) => [contender, runs.flatMap((some) => some.get(contender) ?? [])] as const);
  return new Map(all);
}

function peakRow(name: string, runs: Runs): Row {
  return makeRow({
    name: `${name}: peak memory`,
    unit: "MB",
    better: "lower",
    samples: samplesOf(runs, ({ peakBytes }) => peakBytes / 1e6),
  });
}

function jobOf(load: (typeof DATA_LOADS)[number], path: string, sizeBytes: number): Job {
  const count = Math.ceil(LEAST_BYTES / sizeBytes);
  if (load === "read") return { kind: "read", path, count };
  if (load === "stdout") return { kind: "run", command: writer(sizeBytes, CHUNK_BYTES), count };
  return { kind: "feed", command: READER, totalBytes: sizeBytes, chunkBytes: CHUNK_BYTES, count };
}

function makeSparse(path: string, sizeBytes: number): void {
  const fd = openSync(path, "w");
  ftruncateSync(fd, sizeBytes);
  closeSync(fd);
}

async function dataGrowth(bench: Bench, { load, size }: DataStep): Promise<Row[]> {
  const name = nameOfStep({ load, size });
  const path = join(bench.folder, "sparse");
  makeSparse(path, MIB);
  await runEach(bench, jobOf(load, path, MIB));
  makeSparse(path, size);
  const rounds = size > GIB ? 1 : bench.scale.rounds;
  const runs = await sideBySide(bench, { name, contenders: CONTENDERS, rounds }, () => jobOf(load, path, size));
  rmSync(path);
  const cpu = samplesOf(runs, ({ cpuMs, bytes }) => cpuMs / 1e3 / (bytes / GIB));
  return [makeRow({ name: `${name}: CPU`, unit: "s/GiB", better: "lower", samples: cpu }), peakRow(name, runs)];
}

type DataStep = GrowthStep & { readonly load: (typeof DATA_LOADS)[number] };

/** The same at one, ten, a hundred: a cost that stays the same for each is a straight line for all. */
export async function growthRows(bench: Bench): Promise<Row[]> {
  const { growthExecs, growthBytes } = bench.scale;
  const rows: Row[] = [];
  const firstRuns: Runs[] = [];
  for (const atOnce of growthExecs) {
    rows.push(...(await startedAfresh(bench, (fresh) => execGrowth(fresh, atOnce, firstRuns))));
  }
  rows.unshift(...costRows(FIRST_EXECS_NAME, together(firstRuns)));
  for (const size of growthBytes) {
    for (const load of DATA_LOADS) {
      rows.push(...(await startedAfresh(bench, (fresh) => dataGrowth(fresh, { load, size }))));
    }
  }
  return rows;
}
