import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { buildGo, provideGo } from "../../test/fixtures/go-toolchain.ts";
import { standaloneFolder } from "../../test/fixtures/standalone.ts";
import type { Bench } from "./bench.ts";
import { openField } from "./field.ts";
import { describeMachine } from "./machine.ts";
import { type Group, type Options, readOptions } from "./options.ts";
import { GO_SOURCES } from "./peers/grpc-go.ts";
import { markdownTable, notes } from "./report/table.ts";
import type { Row } from "./row.ts";
import { execRows } from "./rows/exec.ts";
import { fileRows } from "./rows/files.ts";
import { healthRows } from "./rows/health.ts";
import { streamRows } from "./rows/streams.ts";
import { FULL, QUICK } from "./scale.ts";

type Measure = (bench: Bench) => Promise<readonly Row[]>;

const MEASURES: Readonly<Partial<Record<Group, Measure>>> = {
  health: healthRows,
  exec: execRows,
  streams: streamRows,
  files: fileRows,
};

async function nativeProgram(): Promise<string> {
  const go = await provideGo();
  if (typeof go === "string") throw new Error(`the load client is written in Go: ${go}`);
  return buildGo(go, GO_SOURCES);
}

/** Measures what the arguments ask for and prints it. Resolves with the exit status. */
export async function main(args: readonly string[]): Promise<number> {
  const options: Options = readOptions(args);
  const machine = describeMachine();
  const began = performance.now();
  const say = (text: string): void => {
    process.stderr.write(`${((performance.now() - began) / 1000).toFixed(0).padStart(4)} s  ${text}\n`);
  };
  const native = await nativeProgram();
  const agentProgram = options.agentProgram ?? join(standaloneFolder(), "guest-agent");
  await using field = await openField(native, agentProgram, say);
  const bench: Bench = { ...field, scale: options.quick ? QUICK : FULL, native, agentProgram, peaks: new Map(), say };
  const rows: Row[] = [];
  for (const group of options.groups) rows.push(...((await MEASURES[group]?.(bench)) ?? []));
  console.log(markdownTable(rows));
  console.log(notes(rows));
  if (options.jsonFile !== undefined) {
    const contenders = [...field.contenders.values()].map(({ contender, description }) => ({ contender, description }));
    writeFileSync(options.jsonFile, `${JSON.stringify({ machine, contenders, rows }, undefined, 1)}\n`);
  }
  return 0;
}
