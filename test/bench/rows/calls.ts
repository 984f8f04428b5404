import { type Bench, type Runs, sideBySide, warmUp } from "../bench.ts";
import { type Goal, makeRow, type Row, samplesOf } from "../row.ts";
import { besideRow } from "./streams.ts";

const TRUE = ["/bin/true"] as const;
const AT_ONCE = 50;
const CONTENDERS = ["ours", "grpc-go"] as const;

/** Limits of the median and of the slowest of a hundred, as multiples of grpc-go's. */
type LatencyLimits = readonly [p50: number, p99: number];

function atMost(limit: number): Goal {
  return { peer: "grpc-go", relation: "at most", limit };
}

/** The smallest call. */
export async function healthRows(bench: Bench): Promise<Row[]> {
  const calls = bench.scale.healthCalls;
  const repetition = { name: "Health", contenders: CONTENDERS };
  const runs = await sideBySide(bench, repetition, () => ({ kind: "ping", count: calls }));
  return [
    makeRow({
      name: "Health p50",
      unit: "µs",
      samples: samplesOf(runs, ({ latency }) => latency?.p50Us),
      goal: atMost(0.9),
    }),
    makeRow({ name: "Health p99", unit: "µs", samples: samplesOf(runs, ({ latency }) => latency?.p99Us) }),
    makeRow({
      name: "CPU of 1,000 Health calls",
      unit: "ms",
      samples: samplesOf(runs, ({ cpuMs, operations }) => (cpuMs / operations) * 1_000),
      goal: atMost(0.7),
    }),
  ];
}

/** The median and the slowest of a hundred, with goals or without. */
function latencyRows(name: string, runs: Runs, limits?: LatencyLimits): Row[] {
  const [p50, p99] = [
    samplesOf(runs, ({ latency }) => latency?.p50Us),
    samplesOf(runs, ({ latency }) => latency?.p99Us),
  ];
  return [
    makeRow({ name: `${name} p50`, unit: "µs", samples: p50, ...(limits && { goal: atMost(limits[0]) }) }),
    makeRow({ name: `${name} p99`, unit: "µs", samples: p99, ...(limits && { goal: atMost(limits[1]) }) }),
  ];
}

async function roundTripRows(bench: Bench): Promise<Row[]> {
  const runs = await sideBySide(bench, { name: "one byte through cat", contenders: CONTENDERS }, () => ({
    kind: "echo",
    command: ["cat"],
    count: bench.scale.roundTrips,
  }));
  for (const contender of CONTENDERS) await bench.contenders.get(contender)?.load?.run({ kind: "release" });
  return latencyRows("one byte through cat and back,", runs, [1, 1.2]);
}

/** Commands that do nothing, one at a time and many at once, and one that echoes its input. */
export async function execRows(bench: Bench): Promise<Row[]> {
  const { warmUpExecs, execs, execsAtOnce } = bench.scale;
  await warmUp(bench, { kind: "run", command: TRUE, count: warmUpExecs });
  const alone = await sideBySide(bench, { name: "exec of /bin/true", contenders: CONTENDERS }, () => ({
    kind: "run",
    command: TRUE,
    count: execs,
  }));
  const together = await sideBySide(
    bench,
    { name: `exec of /bin/true, ${AT_ONCE} at once`, contenders: CONTENDERS },
    () => ({ kind: "run", command: TRUE, count: execsAtOnce, atOnce: AT_ONCE, probe: true }),
  );
  return [
    ...latencyRows("exec of /bin/true,", alone, [1.05, 1.1]),
    makeRow({
      name: "CPU of an exec of /bin/true",
      unit: "ms",
      samples: samplesOf(alone, ({ cpuMs, operations }) => cpuMs / operations),
      goal: atMost(1.5),
      note: "of the server alone; what the child does before it becomes the command is not seen",
    }),
    ...latencyRows(`exec of /bin/true, ${AT_ONCE} at once,`, together, [1, 1]),
    besideRow(`Health p99 beside ${AT_ONCE} execs at once`, together),
    ...(await roundTripRows(bench)),
  ];
}
