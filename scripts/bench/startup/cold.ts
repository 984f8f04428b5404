import { copyFileSync, cpSync, readdirSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { execaSync } from "execa";
import { makeRow, type Row } from "../row.ts";
import { bareNetServer, builtAgent } from "./programs.ts";
import type { StartupPlan } from "./rows.ts";
import { measureStart } from "./start.ts";

/**
 * The same starts with nothing of the programs in the page cache, as in a sandbox that is started for the first time.
 * They are of copies: what another process has mapped stays in the cache.
 */
export async function coldStartupRows({ agentProgram, starts, say }: StartupPlan): Promise<Row[]> {
  say(`${starts} cold starts`);
  const folder = await mkdtemp(join(tmpdir(), "guest-agent-cold-"));
  try {
    const bundle = join(folder, "bundle");
    const node = join(folder, "node");
    cpSync(dirname(agentProgram), bundle, { recursive: true });
    copyFileSync(process.execPath, node);
    execaSync("sync", ["-f", folder]);
    const bare = bareNetServer(folder, node);
    const agent = await builtAgent(join(bundle, basename(agentProgram)), join(folder, "credentials"));
    const workloadMs: number[] = [];
    const portMs: number[] = [];
    const bareMs: number[] = [];
    for (let round = 0; round < starts; round++) {
      forget(node);
      bareMs.push((await measureStart(bare)).portMs);
      for (const file of readdirSync(bundle, { recursive: true, withFileTypes: true })) {
        if (file.isFile()) forget(join(file.parentPath, file.name));
      }
      const start = await measureStart(await agent());
      workloadMs.push(start.workloadMs);
      portMs.push(start.portMs);
    }
    const row = (name: string, ours: readonly number[]): Row =>
      makeRow({ name, unit: "ms", better: "lower", samples: { ours, "node-net": bareMs } });
    return [row("cold start to the workload", workloadMs), row("cold start to the port", portMs)];
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Drops a file's pages: dd asks for it by posix_fadvise(2). */
function forget(file: string): void {
  execaSync("dd", [`if=${file}`, "iflag=nocache", "count=0", "status=none"]);
}
