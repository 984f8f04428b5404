import { type Bench, type Runs, sideBySide } from "../bench.ts";
import type { Job } from "../contender.ts";
import { type Goal, makeRow, type Row, type Samples, samplesOf } from "../row.ts";

const GIB = 2 ** 30;
const KIB = 1024;
const CHUNK_KIBIBYTES = [32, 256] as const;
const CONTENDERS = ["ours", "grpc-go", "openssh"] as const;

/** Which way the bytes go; what is asked of our CPU and throughput differs. */
export type Direction = "out" | "in";

const THROUGHPUT_LIMITS: Readonly<Record<Direction, number>> = { out: 1.2, in: 1.3 };
/** Against a server that does no more than copy, as a file's way over TLS alone. */
const HTTPS_LIMITS: Readonly<Record<Direction, number>> = { out: 1, in: 0.8 };
const CPU_LIMITS: Readonly<Record<Direction, number>> = { out: 0.5, in: 0.6 };

function goals(limit: number, relation: Goal["relation"], sshLimit: number): readonly Goal[] {
  return [
    { peer: "grpc-go", relation, limit },
    { peer: "openssh", relation, limit: sshLimit },
  ];
}

/** CPU time of the server in seconds, for each GiB. */
export function cpuOfGib(runs: Runs): Samples {
  return samplesOf(runs, ({ bytes, cpuMs }) => cpuMs / 1e3 / (bytes / GIB));
}

/** What a second caller sees beside a load. */
export function besideRow(name: string, runs: Runs, note = ""): Row {
  return makeRow({
    name,
    unit: "ms",
    samples: samplesOf(runs, ({ probe }) => (probe === undefined ? undefined : probe.p99Us / 1e3)),
    note,
  });
}

/** Throughput, CPU of the server for each GiB, and what a second caller sees meanwhile. */
export function transferRows(name: string, direction: Direction, runs: Runs, note = ""): Row[] {
  return [
    makeRow({
      name: `${name}: throughput`,
      unit: "GB/s",
      better: "higher",
      samples: samplesOf(runs, ({ bytes, seconds }) => bytes / seconds / 1e9),
      goals: [
        ...goals(THROUGHPUT_LIMITS[direction], "at least", 2),
        { peer: "go-https", relation: "at least", limit: HTTPS_LIMITS[direction] },
      ],
      note,
    }),
    makeRow({
      name: `${name}: CPU`,
      unit: "s/GiB",
      samples: cpuOfGib(runs),
      goals: goals(CPU_LIMITS[direction], "at most", 0.5),
    }),
    besideRow(`${name}: Health p99 beside it`, runs),
  ];
}

/** A command that writes so many zeros in pieces of that size. */
export function writer(totalBytes: number, chunkBytes: number): readonly string[] {
  return ["dd", "if=/dev/zero", `bs=${chunkBytes}`, `count=${Math.ceil(totalBytes / chunkBytes)}`, "status=none"];
}

/** A command that reads its input to the end. */
export const READER: readonly string[] = ["dd", "of=/dev/null", "bs=1M", "status=none"];

/** A command's output and input at speed, and a terminal's. */
export async function streamRows(bench: Bench): Promise<Row[]> {
  const { streamBytes, terminalBytes } = bench.scale;
  const rows: Row[] = [];
  for (const kibibytes of CHUNK_KIBIBYTES) {
    const chunkBytes = kibibytes * KIB;
    const out: Job = { kind: "run", command: writer(streamBytes, chunkBytes), probe: true };
    const into: Job = { kind: "feed", command: READER, totalBytes: streamBytes, chunkBytes, probe: true };
    const written = await sideBySide(bench, { name: `stdout, ${kibibytes} KiB`, contenders: CONTENDERS }, () => out);
    rows.push(...transferRows(`stdout in ${kibibytes} KiB`, "out", written));
    const fed = await sideBySide(bench, { name: `stdin, ${kibibytes} KiB`, contenders: CONTENDERS }, () => into);
    rows.push(...transferRows(`stdin in ${kibibytes} KiB`, "in", fed));
  }
  const typed = await sideBySide(bench, { name: "terminal", contenders: CONTENDERS }, () => ({
    kind: "terminal",
    command: writer(terminalBytes, 32 * KIB),
    probe: true,
  }));
  return [...rows, ...transferRows("terminal", "out", typed)];
}
