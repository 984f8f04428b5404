import { type Bench, type Runs, sideBySide, warmUp } from "../bench.ts";
import { type Goal, makeRow, type Row, samplesOf } from "../row.ts";
import { besideRow } from "./transfer.ts";

const TRUE = ["/bin/true"] as const;
const AT_ONCE = 50;

const LATENCY_GOALS: readonly Goal[] = [
  { peer: "grpc-go", relation: "at most", limit: 1 },
  { peer: "openssh", relation: "at most", limit: 0.5 },
];
const SSH_NOTE = "OpenSSH starts the user's shell, which becomes the command";

function latencyRows(name: string, runs: Runs, note = ""): Row[] {
  const [p50, p99] = [samplesOf(runs, ({ latency }) => latency.p50Us), samplesOf(runs, ({ latency }) => latency.p99Us)];
  return [
    makeRow({ name: `${name} p50`, unit: "µs", samples: p50, goals: LATENCY_GOALS, note }),
    makeRow({ name: `${name} p99`, unit: "µs", samples: p99, goals: LATENCY_GOALS }),
  ];
}

async function roundTripRows(bench: Bench): Promise<Row[]> {
  const contenders = ["ours", "grpc-go", "openssh"] as const;
  const runs = await sideBySide(bench, { name: "one byte through cat", contenders }, () => ({
    kind: "echo",
    command: ["cat"],
    count: bench.scale.roundTrips,
  }));
  for (const contender of contenders) await bench.contenders.get(contender)?.load.run({ kind: "release" });
  return latencyRows("one byte through cat and back,", runs);
}

/** Commands that do nothing, one at a time and many at once, and one that echoes its input. */
export async function execRows(bench: Bench): Promise<Row[]> {
  const { warmUpExecs, execs, execsAtOnce } = bench.scale;
  await warmUp(bench, { kind: "run", command: TRUE, count: warmUpExecs });
  const alone = await sideBySide(
    bench,
    { name: "exec of /bin/true", contenders: ["ours", "grpc-go", "openssh", "qemu-ga"] },
    () => ({ kind: "run", command: TRUE, count: execs }),
  );
  const together = await sideBySide(
    bench,
    { name: `exec of /bin/true, ${AT_ONCE} at once`, contenders: ["ours", "grpc-go", "openssh"] },
    () => ({ kind: "run", command: TRUE, count: execsAtOnce, atOnce: AT_ONCE, probe: true }),
  );
  return [
    ...latencyRows("exec of /bin/true,", alone, SSH_NOTE),
    makeRow({
      name: "CPU of an exec of /bin/true",
      unit: "ms",
      samples: samplesOf(alone, ({ cpuMs, operations }) => cpuMs / operations),
      goals: [{ peer: "grpc-go", relation: "at most", limit: 1.5 }],
      note: "of the server alone; what the child does before it becomes the command is not seen",
    }),
    ...latencyRows(`exec of /bin/true, ${AT_ONCE} at once,`, together, SSH_NOTE),
    besideRow(`Health p99 beside ${AT_ONCE} execs at once`, together, "OpenSSH: a keepalive request"),
    ...(await roundTripRows(bench)),
  ];
}
