import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Goal, makeRow, type Row } from "../row.ts";
import { bareNetServer, builtAgent } from "./programs.ts";
import { measureStart, type Start } from "./start.ts";

/** The programs to start, and how often. */
export interface StartupPlan {
  /** The launcher of a built agent. */
  readonly agentProgram: string;
  readonly starts: number;
  readonly say: (text: string) => void;
}

/** From nothing to a workload that executes and a port that answers, and what is held then, beside a bare Node server. */
export async function startupRows({ agentProgram, starts, say }: StartupPlan): Promise<Row[]> {
  say(`${starts} starts`);
  const folder = await mkdtemp(join(tmpdir(), "guest-agent-startup-"));
  try {
    const bare = bareNetServer(folder);
    const agent = await builtAgent(agentProgram, folder);
    // The page cache holds both from here on.
    await measureStart(bare);
    await measureStart(await agent());
    const ours: Start[] = [];
    const theirs: Start[] = [];
    for (let round = 0; round < starts; round++) {
      if (round % 2 === 0) theirs.push(await measureStart(bare));
      ours.push(await measureStart(await agent()));
      if (round % 2 === 1) theirs.push(await measureStart(bare));
    }
    return rowsOf(ours, theirs);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

function rowsOf(ours: readonly Start[], theirs: readonly Start[]): Row[] {
  const atMost = (limit: number): Goal[] => [{ peer: "node-net", relation: "at most", limit }];
  const row = (name: string, pick: (start: Start) => number, base: (start: Start) => number, goals: Goal[]): Row =>
    makeRow({
      name,
      unit: "ms",
      better: "lower",
      samples: { ours: ours.map(pick), "node-net": theirs.map(base) },
      goals,
      note: NOTE,
    });
  return [
    row(
      "start to the workload",
      ({ workloadMs }) => workloadMs,
      ({ portMs }) => portMs,
      atMost(1.5),
    ),
    row(
      "start to the port",
      ({ portMs }) => portMs,
      ({ portMs }) => portMs,
      atMost(2.2),
    ),
    row(
      "CPU time of a start",
      ({ cpuMs }) => cpuMs,
      ({ cpuMs }) => cpuMs,
      [],
    ),
    makeRow({
      name: "anonymous memory after the start",
      unit: "MiB",
      better: "lower",
      samples: { ours: ours.map(mebibytes), "node-net": theirs.map(mebibytes) },
      goals: atMost(1.6),
      note: "launcher and agent together",
    }),
  ];
}

const NOTE =
  "with mutual TLS and a workload; node-net: a bare node:net server of the same Node, until its port answers";

function mebibytes({ anonymousBytes }: Start): number {
  return anonymousBytes / 2 ** 20;
}
