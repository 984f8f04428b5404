import type { Runs } from "../bench.ts";
import { type Goal, makeRow, type Row, type Samples, samplesOf } from "../row.ts";

const GIB = 2 ** 30;

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
