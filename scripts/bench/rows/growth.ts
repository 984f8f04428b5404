import { closeSync, ftruncateSync, openSync, rmSync } from "node:fs";
import { join } from "node:path";
import { type Bench, type Runs, samplesOf, sideBySide } from "../bench.ts";
import { makeRow, type Row } from "../row.ts";
import { READER, writer } from "./streams.ts";

const MIB = 2 ** 20;
const GIB = 2 ** 30;
const CHUNK_BYTES = 256 * 1024;
const CONTENDERS = ["ours", "grpc-go"] as const;
/** A small transfer is over before its CPU time can be read: so many are done that together they are this long. */
const LEAST_BYTES = 64 * MIB;

function sizeText(bytes: number): string {
  return bytes >= GIB ? `${bytes / GIB} GiB` : `${bytes / MIB} MiB`;
}

async function execGrowth(bench: Bench, atOnce: number): Promise<Row[]> {
  const name = `${atOnce} execs at once`;
  const runs = await sideBySide(bench, { name, contenders: CONTENDERS }, () => ({
    kind: "run",
    command: ["/bin/true"],
    count: Math.max(bench.scale.execs, 2 * atOnce),
    atOnce,
  }));
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
    peakRow(name, runs),
  ];
}

function peakRow(name: string, runs: Runs): Row {
  return makeRow({
    name: `${name}: peak memory`,
    unit: "MB",
    better: "lower",
    samples: samplesOf(runs, ({ peakBytes }) => peakBytes / 1e6),
  });
}

async function dataGrowth(bench: Bench, sizeBytes: number): Promise<Row[]> {
  const path = join(bench.folder, "sparse");
  const fd = openSync(path, "w");
  ftruncateSync(fd, sizeBytes);
  closeSync(fd);
  const count = Math.ceil(LEAST_BYTES / sizeBytes);
  const jobs = {
    "read of": { kind: "read", path, count },
    "stdout of": { kind: "run", command: writer(sizeBytes, CHUNK_BYTES), count },
    "stdin of": { kind: "feed", command: READER, totalBytes: sizeBytes, chunkBytes: CHUNK_BYTES, count },
  } as const;
  const rows: Row[] = [];
  for (const [what, job] of Object.entries(jobs)) {
    const name = `${what} ${sizeText(sizeBytes)}`;
    const runs = await sideBySide(bench, { name, contenders: CONTENDERS, rounds: 1 }, () => job);
    const cpu = samplesOf(runs, ({ cpuMs, bytes }) => cpuMs / 1e3 / (bytes / GIB));
    rows.push(makeRow({ name: `${name}: CPU`, unit: "s/GiB", better: "lower", samples: cpu }), peakRow(name, runs));
  }
  rmSync(path);
  return rows;
}

/** The same at one, ten, a hundred: a cost that stays the same for each is a straight line for all. */
export async function growthRows(bench: Bench): Promise<Row[]> {
  const rows: Row[] = [];
  for (const atOnce of bench.scale.growthExecs) rows.push(...(await execGrowth(bench, atOnce)));
  for (const sizeBytes of bench.scale.growthBytes) rows.push(...(await dataGrowth(bench, sizeBytes)));
  return rows;
}
