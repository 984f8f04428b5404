import { copyFileSync, cpSync, mkdtempDisposableSync, readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { execaSync } from "execa";
import type { Bench } from "../bench.ts";
import { type Contender, type Goal, makeRow, type Row, samplesOf } from "../row.ts";
import { bareNetServer, builtAgent, measureStart, type Start } from "./start.ts";

const NOTE =
  "with mutual TLS and a workload; node-net: a bare node:net server of the same Node, until its port answers";

/** From nothing to a workload that executes and a port that answers, and what is held then, beside a bare Node server. */
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
  const starts = beside(ours, theirs);
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

/**
 * The same starts with nothing of the programs in the page cache, as in a sandbox that is started for the first time.
 * They are of copies: what another process has mapped stays in the cache.
 */
export async function coldStartupRows({ agentProgram, scale, say }: Bench): Promise<Row[]> {
  say(`${scale.coldStarts} cold starts`);
  using folder = mkdtempDisposableSync(join(tmpdir(), "guest-agent-cold-"));
  const bundle = join(folder.path, "bundle");
  const node = join(folder.path, "node");
  cpSync(dirname(agentProgram), bundle, { recursive: true });
  copyFileSync(process.execPath, node);
  execaSync("sync", ["-f", folder.path]);
  const bare = bareNetServer(folder.path, node);
  const agent = await builtAgent(join(bundle, basename(agentProgram)), join(folder.path, "credentials"));
  const files = readdirSync(bundle, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  const [ours, theirs]: [Start[], Start[]] = [[], []];
  for (let round = 0; round < scale.coldStarts; round++) {
    forget(node);
    theirs.push(await measureStart(bare));
    for (const file of files) forget(join(file.parentPath, file.name));
    ours.push(await measureStart(await agent()));
  }
  const starts = beside(ours, theirs);
  return [
    makeRow({
      name: "cold start to the workload",
      unit: "ms",
      samples: samplesOf(starts, ({ workloadMs }) => workloadMs),
    }),
    makeRow({ name: "cold start to the port", unit: "ms", samples: samplesOf(starts, ({ portMs }) => portMs) }),
  ];
}

function beside(ours: readonly Start[], theirs: readonly Start[]): ReadonlyMap<Contender, readonly Start[]> {
  return new Map([
    ["ours", ours],
    ["node-net", theirs],
  ]);
}

/** Drops a file's pages: dd asks for it by posix_fadvise(2). */
function forget(file: string): void {
  execaSync("dd", [`if=${file}`, "iflag=nocache", "count=0", "status=none"]);
}
