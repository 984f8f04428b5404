import { type Bench, type Runs, sideBySide, warmUp } from "../bench.ts";
import { startBuiltAgent } from "../peers/peers.ts";
import { type Goal, makeRow, type Row, samplesOf } from "../row.ts";
import { besideRow } from "./streams.ts";

const TRUE = ["/bin/true"] as const;
const AT_ONCE = 50;

const LATENCY_GOALS: readonly Goal[] = [
  { peer: "grpc-go", relation: "at most", limit: 1 },
  { peer: "openssh", relation: "at most", limit: 0.5 },
];
const SSH_NOTE = "OpenSSH starts the user's shell, which becomes the command";

/** The smallest call. */
export async function healthRows(bench: Bench): Promise<Row[]> {
  const calls = bench.scale.healthCalls;
  const repetition = { name: "Health", contenders: ["ours", "grpc-go", "node-http2", "qemu-ga"] } as const;
  const runs = await sideBySide(bench, repetition, () => ({ kind: "ping", count: calls }));
  return [
    makeRow({
      name: "Health p50",
      unit: "µs",
      samples: samplesOf(runs, ({ latency }) => latency.p50Us),
      goals: [{ peer: "grpc-go", relation: "at most", limit: 0.9 }],
      note: "qemu-ga: guest-ping over a unix socket, without TLS",
    }),
    makeRow({ name: "Health p99", unit: "µs", samples: samplesOf(runs, ({ latency }) => latency.p99Us) }),
    makeRow({
      name: "CPU of 1,000 Health calls",
      unit: "ms",
      samples: samplesOf(runs, ({ cpuMs, operations }) => (cpuMs / operations) * 1_000),
      goals: [{ peer: "grpc-go", relation: "at most", limit: 0.7 }],
    }),
  ];
}

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

/** The restore duties of an agent of its own: they end the connections of others. Without a clock step. */
export async function dutiesRows(bench: Bench): Promise<Row[]> {
  bench.say("restore duties");
  await using running = await startBuiltAgent(bench.native, bench.agentProgram);
  const milliseconds: number[] = [];
  for (let round = 0; round < bench.scale.duties; round++) {
    const { latency } = await running.load.run({ kind: "duties" });
    milliseconds.push(latency.p50Us / 1e3);
    // The duties let their own connection finish, and it accepts no more calls.
    await running.load.run({ kind: "redial" });
    await running.load.run({ kind: "ping" });
  }
  return [
    makeRow({
      name: "restore duties",
      unit: "ms",
      samples: { ours: milliseconds },
      note: "64 bytes of entropy, CRNG reseed, credentials read anew; no clock step",
    }),
  ];
}
