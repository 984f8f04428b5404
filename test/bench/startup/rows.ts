import { mkdtempDisposableSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Bench } from "../bench.ts";
import { type Contender, type Goal, makeRow, type Row, samplesOf } from "../row.ts";
import { bareNetServer, builtAgent, measureStart, type Start } from "./start.ts";

const NOTE =
  "with mutual TLS and a workload; node-net: a bare node:net server of the same Node, until its port answers";

/** Times from the spawn to a workload and a port that answers, and the memory then, beside a bare Node server. */
export async function startupRows({ agentProgram, scale, say }: Bench): Promise<Row[]> {
  say(`${scale.starts} starts`);
  using folder = mkdtempDisposableSync(join(tmpdir(), "guest-agent-startup-"));
  const bare = bareNetServer(folder.path);
  const agent = await builtAgent(agentProgram, folder.path);
  // The page cache holds both from here on.
  await measureStart(bare);
  await measureStart(await agent());
  const [ours, theirs]: [Start[], Start[]] = [[], []];
  for (let round = 0; round < scale.starts; round++) {
    if (round % 2 === 0) theirs.push(await measureStart(bare));
    ours.push(await measureStart(await agent()));
    if (round % 2 === 1) theirs.push(await measureStart(bare));
  }
  const starts = new Map<Contender, readonly Start[]>([
    ["ours", ours],
    ["node-net", theirs],
  ]);
  const atMost = (limit: number): Goal => ({ peer: "node-net", relation: "at most", limit });
  return [
    makeRow({
      name: "start to the workload",
      unit: "ms",
      samples: samplesOf(starts, ({ workloadMs }) => workloadMs),
      goal: atMost(1.5),
      note: NOTE,
    }),
    makeRow({
      name: "start to the port",
      unit: "ms",
      samples: samplesOf(starts, ({ portMs }) => portMs),
      goal: atMost(2.2),
      note: NOTE,
    }),
    makeRow({ name: "CPU time of a start", unit: "ms", samples: samplesOf(starts, ({ cpuMs }) => cpuMs), note: NOTE }),
    makeRow({
      name: "anonymous memory after the start",
      unit: "MiB",
      samples: samplesOf(starts, ({ anonymousBytes }) => anonymousBytes / 2 ** 20),
      goal: atMost(1.6),
      note: "launcher and agent together",
    }),
  ];
}
