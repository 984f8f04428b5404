import { type Bench, sideBySide } from "../bench.ts";
import type { Job, Measurement } from "../contender.ts";
import { openField } from "../field.ts";
import { type Contender, makeRow, type Row, samplesOf } from "../row.ts";

const PEER = "grpc-go";
const CONTENDERS = ["ours", PEER] as const;
const NAME = "first 100 execs";
const FIRST: Job = { kind: "run", command: ["/bin/true"], count: 100 };
/** As many commands as the agent runs at once: for the peak of all loads. */
const MOST: Job = { ...FIRST, count: 512, atOnce: 256 };

/** The first commands of servers that were just started: a new one compiles what it runs. */
export async function firstExecRows(bench: Bench): Promise<Row[]> {
  const runs = new Map<Contender, Measurement[]>();
  for (let server = 0; server < bench.scale.newServers; server++) {
    await using field = await openField(bench, [PEER]);
    const fresh = { ...bench, ...field };
    const once = { name: NAME, contenders: CONTENDERS, rounds: 1 };
    for (const [contender, measured] of await sideBySide(fresh, once, () => FIRST))
      runs.getOrInsert(contender, []).push(...measured);
    if (server > 0) continue;
    await sideBySide(fresh, { ...once, name: `${MOST.atOnce} execs at once` }, () => MOST);
  }
  return [
    makeRow({
      name: `${NAME}: each`,
      unit: "ms",
      samples: samplesOf(runs, ({ seconds, operations }) => (seconds * 1e3) / operations),
    }),
    makeRow({
      name: `${NAME}: CPU of each`,
      unit: "ms",
      samples: samplesOf(runs, ({ cpuMs, operations }) => cpuMs / operations),
      goal: { peer: PEER, relation: "at most", limit: 1.6 },
    }),
  ];
}
