/** `npm run bench`: compares the agent with its alternatives, on this machine, in this run. See `--help`. */
import { writeFileSync } from "node:fs";
import { availableParallelism, loadavg } from "node:os";
import { join } from "node:path";
import { runScript } from "../../scripts/machine/script.ts";
import { isContained, runContained } from "../../scripts/testing/contained.ts";
import { standaloneDirectory } from "../fixtures/bundles.ts";
import { buildGo, provideGo } from "../fixtures/toolchains.ts";
import { type Bench, warmUp } from "./bench.ts";
import { openField } from "./field.ts";
import { GUARD_PEER, type Loss, lossesAgainst, readRecorded, together, writeRecorded } from "./guard.ts";
import { measureMicroVms } from "./micro-vms.ts";
import { type Group, MEASURES, readOptions, USAGE } from "./options.ts";
import { GO_SOURCES, SERVING_PEERS } from "./peers/peers.ts";
import { dataOf, describeMachine, publish, readData, type Report, wholeReport } from "./report.ts";
import type { Row } from "./row.ts";
import { FULL, QUICK } from "./scale.ts";

/** Times that a group is measured before a loss counts. */
const TRIES = 4;
/** Enough calls to warm up every server. */
const WARM_UP_CALLS = 1_000;

async function nativeProgram(): Promise<string> {
  const go = await provideGo();
  if (typeof go === "string") throw new Error(`the load client is written in Go: ${go}`);
  return buildGo(go, GO_SOURCES);
}

/** Measures the rows that the arguments select and prints them. Resolves with the exit status. */
export async function main(args: readonly string[]): Promise<number> {
  const options = readOptions(args);
  if (options.figures) {
    publish(readData());
    return 0;
  }
  const machine = describeMachine();
  const began = performance.now();
  const seconds = (): number => Math.round((performance.now() - began) / 1000);
  const say = (text: string): void => {
    process.stderr.write(`${String(seconds()).padStart(4)} s  ${text}\n`);
  };
  const native = await nativeProgram();
  const agentProgram = options.agent ?? join(standaloneDirectory(), "guest-agent");
  const programs = { native, agentProgram, say };
  if (options.kvm) {
    const { hypervisor, contenders, rows } = await measureMicroVms(programs, options.quick);
    const report = { machine: { ...machine, hypervisor }, contenders, seconds: seconds(), rows };
    console.log(wholeReport(report));
    const file = options.json ?? "kvm.json";
    writeFileSync(file, dataOf(report));
    console.log(`\nwritten to ${file}`);
    return 0;
  }
  await using field = await openField(programs, options.guard || options.record ? [GUARD_PEER] : SERVING_PEERS);
  const bench: Bench = { ...field, ...programs, scale: options.quick ? QUICK : FULL, peaks: new Map() };
  say("warming up");
  await warmUp(bench, { kind: "ping", count: WARM_UP_CALLS });
  const rows = new Map<Group, readonly Row[]>();
  for (const group of options.groups) rows.set(group, await MEASURES[group](bench));
  const contenders = [...field.contenders].map(([contender, { description }]) => ({ contender, description }));
  const all = [...rows.values()].flat();
  const report: Report = { machine, contenders, seconds: seconds(), rows: all };
  console.log(wholeReport(report));
  if (options.json !== undefined) writeFileSync(options.json, dataOf(report));
  if (options.publish) publish(report);
  if (options.record) writeRecorded(all);
  return options.guard ? await guard(bench, rows) : 0;
}

/** A loss counts only if it remains with the rounds of all tries: otherwise the machine was only busy. */
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

await runScript("bench", USAGE, () => {
  const args = process.argv.slice(2);
  readOptions(args);
  // Contained: it starts many servers and loads, and a user may well interrupt a quarter of an hour.
  return isContained() ? main(args) : runContained(import.meta.filename, args);
});
