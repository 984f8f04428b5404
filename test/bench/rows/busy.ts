import { availableParallelism } from "node:os";
import { cpuMsOf } from "../../fixtures/proc.ts";
import { type Bench, type Runs, sideBySide, warmUp } from "../bench.ts";
import { clientOf, type Job } from "../contender.ts";
import { openField } from "../field.ts";
import { LineProcess } from "../line-process.ts";
import { type Contender, type Goal, makeRow, type Row, samplesOf } from "../row.ts";

const PEER = "grpc-go";
const CONTENDERS = ["ours", PEER] as const;
const GOAL: Goal = { peer: PEER, relation: "at most", limit: 2 };
/** Loops for each core: with more than one, a task that has to wait for its turn waits several times as long. */
const LOOPS_PER_CORE = [1, 4] as const;
/** Calls without pauses would use up the server's fair share of the CPU, and then measure the share. */
const PAUSE_MS = 20;

/** An endless loop on one core, in a session of its own as a workload or another service would be. */
function startLoop(core: number): LineProcess {
  return new LineProcess("setsid", "taskset", "-c", String(core), "sh", "-c", "while :; do :; done");
}

/** Single calls, with pauses between them, while endless loops keep every core busy. */
export async function busyRows(bench: Bench): Promise<Row[]> {
  const cores = availableParallelism();
  await using field = await openField(bench, [PEER], { ownSessions: true });
  const busy = { ...bench, ...field };
  await warmUp(busy, { kind: "run", command: ["/bin/true"], count: bench.scale.warmUpExecs });
  const rows: Row[] = [];
  for (const perCore of LOOPS_PER_CORE) {
    await using loops = new AsyncDisposableStack();
    const started = Array.from({ length: perCore * cores }, (_, number) => loops.use(startLoop(number % cores)));
    rows.push(...(await rowsBeside(busy, started)));
  }
  return rows;
}

async function rowsBeside(bench: Bench, loops: readonly LineProcess[]): Promise<Row[]> {
  const beside = `beside ${loops.length} endless loops`;
  const paced = { count: bench.scale.callsBesideLoops, pauseMs: PAUSE_MS } as const;
  const shares: Partial<Record<Contender, number[]>> = {};
  const measured = (name: string, job: Job, ofLoops?: typeof shares): Promise<Runs> =>
    sideBySide(bench, { name: `${name} ${beside}`, contenders: CONTENDERS }, (contender) => async () => {
      const beforeMs = cpuMsOf(...loops.map(({ pid }) => pid));
      const running = bench.contenders.get(contender);
      if (running === undefined) throw new Error("it was left out");
      const result = await clientOf(running).run(job);
      const usedMs = cpuMsOf(...loops.map(({ pid }) => pid)) - beforeMs;
      if (ofLoops !== undefined) (ofLoops[contender] ??= []).push(usedMs / 1e3 / result.seconds);
      return result;
    });
  const health = await measured("Health", { kind: "ping", ...paced });
  const execs = await measured("exec of /bin/true", { kind: "run", command: ["/bin/true"], ...paced }, shares);
  return [
    makeRow({ name: `Health ${beside}, p50`, unit: "µs", samples: samplesOf(health, ({ latency }) => latency?.p50Us) }),
    makeRow({
      name: `Health ${beside}, p99`,
      unit: "µs",
      samples: samplesOf(health, ({ latency }) => latency?.p99Us),
      goal: GOAL,
      note: `${PAUSE_MS} ms between calls; the server, its client and each loop have sessions of their own`,
    }),
    makeRow({
      name: `exec of /bin/true ${beside}, p50`,
      unit: "µs",
      samples: samplesOf(execs, ({ latency }) => latency?.p50Us),
      goal: GOAL,
    }),
    makeRow({
      name: `CPUs that the loops get beside these execs (${loops.length} loops)`,
      unit: "CPUs",
      better: "higher",
      samples: shares,
    }),
  ];
}
