import { type Bench, type Runs, samplesOf, sideBySide, uncounted } from "../bench.ts";
import { type Contender, type Goal, makeRow, type Row } from "../row.ts";

const TRUE = ["/bin/true"] as const;
const AT_ONCE = 50;

const LATENCY_GOALS: readonly Goal[] = [
  { peer: "grpc-go", relation: "at most", limit: 1 },
  { peer: "openssh", relation: "at most", limit: 0.5 },
];
const SSH_NOTE = "OpenSSH starts the user's shell, which becomes the command";

function latencyRows(name: string, runs: Runs, note: string): Row[] {
  return [
    makeRow({
      name: `${name} p50`,
      unit: "µs",
      better: "lower",
      samples: samplesOf(runs, ({ latency }) => latency?.p50Us),
      goals: LATENCY_GOALS,
      note,
    }),
    makeRow({
      name: `${name} p99`,
      unit: "µs",
      better: "lower",
      samples: samplesOf(runs, ({ latency }) => latency?.p99Us),
      goals: LATENCY_GOALS,
    }),
  ];
}

function cpuRow(name: string, runs: Runs): Row {
  return makeRow({
    name,
    unit: "ms",
    better: "lower",
    samples: samplesOf(runs, ({ cpuMs, operations }) => cpuMs / operations),
    goals: [{ peer: "grpc-go", relation: "at most", limit: 1.5 }],
    note: "of the server alone; what the child does before it becomes the command is not seen",
  });
}

async function roundTripRows(bench: Bench): Promise<Row[]> {
  const contenders = ["ours", "grpc-go", "openssh"] as const;
  const runs = await sideBySide(bench, { name: "one byte through cat", contenders }, () => ({
    kind: "echo",
    command: ["cat"],
    count: bench.scale.roundTrips,
  }));
  for (const contender of contenders) await bench.contenders.get(contender)?.load.run({ kind: "release" });
  return latencyRows("one byte through cat and back,", runs, "");
}

/** Commands that do nothing, one at a time and many at once, and one that echoes its input. */
export async function execRows(bench: Bench): Promise<Row[]> {
  const { warmUpExecs, execs, execsAtOnce } = bench.scale;
  const contenders: readonly Contender[] = ["ours", "grpc-go", "openssh", "qemu-ga"];
  await uncounted(bench, contenders, { kind: "run", command: TRUE, count: warmUpExecs });
  const alone = await sideBySide(bench, { name: "exec of /bin/true", contenders }, () => ({
    kind: "run",
    command: TRUE,
    count: execs,
  }));
  const together = await sideBySide(
    bench,
    { name: `exec of /bin/true, ${AT_ONCE} at once`, contenders: ["ours", "grpc-go", "openssh"] },
    () => ({ kind: "run", command: TRUE, count: execsAtOnce, atOnce: AT_ONCE, probe: true }),
  );
  return [
    ...latencyRows("exec of /bin/true,", alone, SSH_NOTE),
    cpuRow("CPU of an exec of /bin/true", alone),
    ...latencyRows(`exec of /bin/true, ${AT_ONCE} at once,`, together, SSH_NOTE),
    makeRow({
      name: `Health p99 beside ${AT_ONCE} execs at once`,
      unit: "ms",
      better: "lower",
      samples: samplesOf(together, ({ probe }) => (probe === undefined ? undefined : probe.p99Us / 1e3)),
      note: "OpenSSH: a keepalive request",
    }),
    ...(await roundTripRows(bench)),
  ];
}
