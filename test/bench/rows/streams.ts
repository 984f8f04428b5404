import { type Bench, type Runs, sideBySide } from "../bench.ts";
import type { Job } from "../contender.ts";
import { type Goal, makeRow, type Peer, type Row, type RowSpec, samplesOf } from "../row.ts";

const GIB = 2 ** 30;
const KIB = 1024;
const CHUNK_KIBIBYTES = [32, 256] as const;
const CONTENDERS = ["ours", "grpc-go"] as const;

/** Which way the bytes go. */
type Direction = "out" | "in";

/** Goals of a transfer, as multiples of the best peer's that does the same work. */
export interface TransferGoals {
  readonly peer: Peer;
  /** At least. Undefined, as for the others: shown only. */
  readonly throughput?: number;
  /** At most. */
  readonly cpu?: number;
  /** Health's p99 beside it, at most. */
  readonly health?: number;
}

const STREAM_GOALS: Readonly<Record<Direction, TransferGoals>> = {
  out: { peer: "grpc-go", throughput: 1.2, cpu: 0.5 },
  in: { peer: "grpc-go", throughput: 1.3, cpu: 0.6 },
};
const TERMINAL_GOALS: TransferGoals = { ...STREAM_GOALS.out, health: 1.5 };

/** Latency for a second caller beside a load. */
export function besideRow(name: string, runs: Runs, { goal }: Pick<RowSpec, "goal"> = {}): Row {
  return makeRow({
    name,
    unit: "ms",
    samples: samplesOf(runs, ({ probe }) => (probe === undefined ? undefined : probe.p99Us / 1e3)),
    ...(goal && { goal }),
  });
}

/** Throughput, CPU of the server for each GiB, and what a second caller sees meanwhile, if there was one. */
export function transferRows(name: string, goals: TransferGoals, runs: Runs, note = ""): Row[] {
  const goalOf = (relation: Goal["relation"], limit: number | undefined): Pick<RowSpec, "goal"> =>
    limit === undefined ? {} : { goal: { peer: goals.peer, relation, limit } };
  const isProbed = [...runs.values()].flat().some(({ probe }) => probe !== undefined);
  return [
    makeRow({
      name: `${name}: throughput`,
      unit: "GB/s",
      better: "higher",
      samples: samplesOf(runs, ({ bytes, seconds }) => bytes / seconds / 1e9),
      ...goalOf("at least", goals.throughput),
      note,
    }),
    makeRow({
      name: `${name}: CPU`,
      unit: "s/GiB",
      samples: samplesOf(runs, ({ bytes, cpuMs }) => cpuMs / 1e3 / (bytes / GIB)),
      ...goalOf("at most", goals.cpu),
    }),
    ...(isProbed ? [besideRow(`${name}: Health p99 beside it`, runs, goalOf("at most", goals.health))] : []),
  ];
}

/** A command that writes that many zeros in pieces of that size. */
function writer(totalBytes: number, chunkBytes: number): readonly string[] {
  return ["dd", "if=/dev/zero", `bs=${chunkBytes}`, `count=${Math.ceil(totalBytes / chunkBytes)}`, "status=none"];
}

/** A command that reads its input to the end. */
const READER: readonly string[] = ["dd", "of=/dev/null", "bs=1M", "status=none"];

/** A command's output and input at speed, and a terminal's. */
export async function streamRows(bench: Bench): Promise<Row[]> {
  const { streamBytes, terminalBytes } = bench.scale;
  const rows: Row[] = [];
  for (const kibibytes of CHUNK_KIBIBYTES) {
    const chunkBytes = kibibytes * KIB;
    const out: Job = { kind: "run", command: writer(streamBytes, chunkBytes), probe: true };
    const into: Job = { kind: "feed", command: READER, totalBytes: streamBytes, chunkBytes, probe: true };
    const written = await sideBySide(bench, { name: `stdout, ${kibibytes} KiB`, contenders: CONTENDERS }, () => out);
    rows.push(...transferRows(`stdout in ${kibibytes} KiB`, STREAM_GOALS.out, written));
    const fed = await sideBySide(bench, { name: `stdin, ${kibibytes} KiB`, contenders: CONTENDERS }, () => into);
    rows.push(...transferRows(`stdin in ${kibibytes} KiB`, STREAM_GOALS.in, fed));
  }
  const typed = await sideBySide(bench, { name: "terminal", contenders: CONTENDERS }, () => ({
    kind: "terminal",
    command: writer(terminalBytes, 32 * KIB),
    probe: true,
  }));
  return [...rows, ...transferRows("terminal", TERMINAL_GOALS, typed)];
}
