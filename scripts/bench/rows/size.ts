import { globSync, readdirSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Bench } from "../bench.ts";
import { makeRow, type Row } from "../row.ts";

function folderBytes(folder: string): number {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return files.reduce((sum, entry) => sum + statSync(join(entry.parentPath, entry.name)).size, 0);
}

/** Sizes of the agent's folder and of its archive. */
export function sizeRows(bench: Bench): Row[] {
  const folder = dirname(bench.agentProgram);
  const [archive] = globSync(join(dirname(folder), `guest-agent-*-linux-${process.arch}.tar.zst`));
  const row = (name: string, values: readonly number[]): Row =>
    makeRow({ name, unit: "MB", samples: { ours: values.map((bytes) => bytes / 1e6) } });
  return [
    row("size of the folder", [folderBytes(folder)]),
    row("size of the archive", archive === undefined ? [] : [statSync(archive).size]),
  ];
}
