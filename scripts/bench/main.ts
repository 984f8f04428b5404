import { mkdirSync, writeFileSync } from "node:fs";
import { availableParallelism, loadavg } from "node:os";
import { dirname, join } from "node:path";
import { buildGo, provideGo } from "../../test/fixtures/go-toolchain.ts";
import { standaloneFolder } from "../../test/fixtures/standalone.ts";
import { type Bench, warmUp } from "./bench.ts";
import { openField } from "./field.ts";
import { GUARD_PEER, lossesAgainst, type Loss, readRecorded, together, writeRecorded } from "./guard.ts";
import { type Group, type Options, readOptions } from "./options.ts";
import { GO_SOURCES } from "./peers/grpc-go.ts";
import { plotGrowth } from "./report/growth-plot.ts";
import { plot } from "./report/plot.ts";
import { describeMachine, insertInto, markdownReport, type Report } from "./report/report.ts";
import { summaryReport } from "./report/summary.ts";
import type { Row } from "./row.ts";
import { dutiesRows } from "./rows/duties.ts";
import { execRows } from "./rows/exec.ts";
import { fileRows } from "./rows/files.ts";
import { growthRows } from "./rows/growth.ts";
import { healthRows } from "./rows/health.ts";
import { idleRows } from "./rows/idle.ts";
import { memoryRows } from "./rows/memory.ts";
import { sizeRows } from "./rows/size.ts";
import { snapshotRows } from "./rows/snapshot.ts";
import { streamRows } from "./rows/streams.ts";
import { FULL, QUICK } from "./scale.ts";
import { coldStartupRows } from "./startup/cold.ts";
import { firstCallsRows } from "./startup/first-calls.ts";
import { startupRows } from "./startup/rows.ts";

/** Rows of the plot: what callers see, and its cost. */
const PLOTTED: readonly Group[] = ["health", "exec", "streams", "files"];
/** Times that a group is measured before a loss counts. */
const TRIES = 4;

async function nativeProgram(): Promise<string> {
  const go = await provideGo();
  if (typeof go === "string") throw new Error(`the load client is written in Go: ${go}`);
  return buildGo(go, GO_SOURCES);
}

/** Measures the rows that the arguments select and prints them. Resolves with the exit status. */
export async function main(args: readonly string[]): Promise<number> {
  const options: Options = readOptions(args);
  const machine = describeMachine();
  const began = performance.now();
  const say = (text: string): void => {
    process.stderr.write(`${((performance.now() - began) / 1000).toFixed(0).padStart(4)} s  ${text}\n`);
  };
  const native = await nativeProgram();
  const agentProgram = options.agentProgram ?? join(standaloneFolder(), "guest-agent");
  await using field = await openField({
    native,
    agentProgram,
    peers: options.guard || options.record ? [GUARD_PEER] : undefined,
    say,
  });
  const bench: Bench = { ...field, scale: options.quick ? QUICK : FULL, native, agentProgram, peaks: new Map(), say };
  await warmUp(bench);
  const rows = new Map<Group, readonly Row[]>();
  for (const group of options.groups) rows.set(group, await MEASURES[group](bench));
  const contenders = [...field.contenders.values()].map(({ contender, description }) => ({ contender, description }));
  const all = [...rows.values()].flat();
  const report: Report = { machine, contenders, seconds: Math.round((performance.now() - began) / 1000), rows: all };
  console.log(markdownReport(report));
  publish(options, report, rows);
  if (options.record) writeRecorded(all);
  return options.guard ? await guard(bench, rows) : 0;
}

/** Writes the files that the arguments name. */
function publish(options: Options, report: Report, rows: ReadonlyMap<Group, readonly Row[]>): void {
  const { jsonFile, svgFile, growthSvgFile, markdownFile, summaryFile } = options;
  save(jsonFile, `${JSON.stringify(report, undefined, 1)}\n`);
  save(svgFile, plot(PLOTTED.flatMap((group) => rows.get(group) ?? [])));
  save(growthSvgFile, plotGrowth(rows.get("growth") ?? []));
  if (markdownFile !== undefined) save(markdownFile, insertInto(markdownFile, markdownReport(report)));
  if (summaryFile !== undefined) save(summaryFile, insertInto(summaryFile, summaryReport(report)));
}

function save(file: string | undefined, text: string): void {
  if (file === undefined) return;
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}

/** A loss must still be there with the rounds of all tries: otherwise the machine was only busy. */
async function guard(bench: Bench, measured: ReadonlyMap<Group, readonly Row[]>): Promise<number> {
  const recorded = readRecorded();
  const lossesOf = (rows: readonly Row[]): readonly Loss[] => {
    const [lastMinute = 0] = loadavg();
    return lossesAgainst(recorded, rows, lastMinute / availableParallelism());
  };
  let status = 0;
  for (const [group, first] of measured) {
    let rows = first;
    for (let tries = 1; tries < TRIES && lossesOf(rows).length > 0; tries++) {
      rows = together(rows, await MEASURES[group](bench));
    }
    for (const { row, recorded: before, now } of lossesOf(rows)) {
      console.error(`lost: ${row} was ${before} of grpc-go's and is now ${now.toFixed(2)}, the best of ${TRIES} tries`);
      status = 1;
    }
  }
  if (status === 0) console.error("no row is clearly worse than recorded");
  return status;
}

/** How each group of rows is measured. */
const MEASURES: Readonly<Record<Group, (bench: Bench) => readonly Row[] | Promise<readonly Row[]>>> = {
  health: healthRows,
  exec: execRows,
  streams: streamRows,
  files: fileRows,
  growth: growthRows,
  startup: async ({ agentProgram, native, scale, say }) => [
    ...(await startupRows({ agentProgram, starts: scale.starts, say })),
    ...(await firstCallsRows({ agentProgram, native, servers: scale.coldStarts, say })),
    ...(await coldStartupRows({ agentProgram, starts: scale.coldStarts, say })),
  ],
  size: sizeRows,
  duties: dutiesRows,
  idle: idleRows,
  memory: memoryRows,
  snapshot: snapshotRows,
};
