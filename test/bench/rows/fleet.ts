import { mkdir, symlink } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { execa } from "execa";
import type { SweepReport } from "../../../src/node/sandboxes/index.ts";
import {
  Fleet,
  type FleetCounts,
  type FleetOptions,
  makeArchive,
  provideFleet,
  requestsOf,
} from "../../fleet/fleet.ts";
import { measured, NodeSide } from "../../fleet/node-process.ts";
import type { NodeSideParts, NodeSideResult } from "../../fleet/node-side.ts";
import type { Bench } from "../bench.ts";
import { type Goal, makeRow, type Row } from "../row.ts";

const ROOT = join(import.meta.dirname, "../../..");
const BEFORE = "0.3.0";
/** Of a guest's hook and duties. */
const HOOK_MS = 200;
const DUTIES_MS = 30;
const MB = 1e6;
const CREATES = 50;
/** About that of the agent's own archive. */
const ARCHIVE_BYTES = 46e6;
const WATCH_STARTS_SECONDS = 45;
const WATCH_SECONDS = 20;

/** One figure of both versions; of the one before only where it takes no minutes. */
interface Figure {
  readonly ours: number;
  readonly before?: number | undefined;
}

interface Run extends NodeSideResult {
  readonly counts: FleetCounts;
}

/** The node side beside 100 and 1,000 sandboxes, and its release before beside 100. No rows without Go. */
export async function fleetRows(bench: Bench): Promise<Row[]> {
  const provided = await provideFleet();
  if (typeof provided === "string") {
    bench.say(`not measured: the fleet ${provided}`);
    return [];
  }
  const library = await libraryBefore(bench.directory);
  const run = async (
    options: Omit<FleetOptions, "program">,
    parts: Pick<NodeSideParts, "operation"> & Partial<NodeSideParts>,
  ): Promise<Run> => {
    await using fleet = await Fleet.start({ ...provided, hookMs: HOOK_MS, dutiesMs: DUTIES_MS, ...options });
    const [node] = fleet.nodes;
    if (node === undefined) throw new Error("the fleet has no node");
    const result = await measured({ ...node, ...parts });
    return { ...result, counts: await fleet.counts() };
  };
  const rows: Row[] = [];
  const add = (name: string, unit: string, { ours, before }: Figure, goal?: number, note = ""): void => {
    const samples = { ours: [ours], ...(before !== undefined && { before: [before] }) };
    const limit: Goal | undefined = goal === undefined ? undefined : { relation: "at most", limit: goal };
    rows.push(makeRow({ name, unit, samples, ...(limit && { goal: limit }), note }));
  };

  const addCosts = (
    title: string,
    sweeps: (pick: (run: Run) => number) => Figure,
    goalS?: number,
    note?: string,
  ): void => {
    add(
      `${title}: CPU`,
      "s",
      sweeps(({ cpuMs }) => cpuMs / 1e3),
      goalS,
      note,
    );
    add(
      `${title}: longest block of the event loop`,
      "ms",
      sweeps(({ blockMs }) => blockMs),
      100,
    );
    add(
      `${title}: requests`,
      "",
      sweeps(({ counts }) => requestsOf(counts)),
    );
  };

  const healthy = new Map<number, Run>();
  for (const count of [100, 1_000]) {
    const title = `sweep of ${count.toLocaleString("en")} healthy sandboxes`;
    bench.say(title);
    const ours = await run({ count }, { operation: "sweep" });
    const before = count === 100 ? await run({ count }, { operation: "sweep", library }) : undefined;
    healthy.set(count, ours);
    addCosts(title, pairOf(ours, before), count === 1_000 ? 0.5 : undefined, NOTE);
  }
  const growth = Math.log10((healthy.get(1_000)?.cpuMs ?? NaN) / (healthy.get(100)?.cpuMs ?? NaN));
  add("sweep of healthy sandboxes: exponent of its CPU time's growth", "", { ours: growth }, 1.1);

  for (const count of [100, 1_000]) {
    const title = `sweep of ${count.toLocaleString("en")} frozen sandboxes`;
    bench.say(title);
    const options = { count, isFrozen: true };
    const before = count === 100 ? await run(options, { operation: "sweep", library }) : undefined;
    const silent = count / 10;
    const ours = await run(
      { ...options, silent: count === 100 ? 0 : silent },
      { operation: "sweep", reachTimeoutMs: 30_000 },
    );
    const note =
      count === 100 ? "" : `${silent} of them silent, and those thaw first; ${failuresOf(ours)} were reported`;
    add(
      `${title}: thawed before their duties`,
      "",
      pair(ours, before, ({ counts }) => counts.late),
      0,
      note,
    );
    add(
      `${title}: last duties after`,
      "s",
      pair(ours, before, ({ counts }) => counts.lastDutiesMs / 1e3),
    );
    addCosts(title, pairOf(ours, before));
    add(
      `${title}: handshakes`,
      "",
      pair(ours, before, ({ counts }) => counts.handshakes),
    );
  }

  for (const count of [100, 1_000]) rows.push(...(await watchRows(bench, provided, count, library)));

  bench.say(`${CREATES} creates at once`);
  const agentArchive = join(bench.directory, "agent.tar.gz");
  await makeArchive(bench.directory, agentArchive, ARCHIVE_BYTES);
  const parts = { operation: "create", count: CREATES, agentArchive } as const;
  const options = { count: 0, writeMs: 200 };
  const creates = pairOf(await run(options, parts), await run(options, { ...parts, library }));
  const title = `${CREATES} creates at once with a new agent of ${ARCHIVE_BYTES / MB} MB`;
  add(
    `${title}: peak memory`,
    "MB",
    creates(({ peakRssBytes }) => peakRssBytes / MB),
  );
  add(
    `${title}: uploads of the agent`,
    "",
    creates(({ counts }) => uploadsOf(counts)),
    1,
  );
  add(
    `${title}: CPU`,
    "s",
    creates(({ cpuMs }) => cpuMs / 1e3),
  );
  return rows;
}

const NOTE =
  "these and the next rows: the node side's own process, beside agents with an authority each and a fake of the daemon's API, all in Go; a block is the main thread's CPU time between two turns of its event loop";

/** A watch from its start, and then at rest. */
async function watchRows(
  bench: Bench,
  provided: { readonly program: string },
  count: number,
  library: string,
): Promise<Row[]> {
  const title = `watch of ${count.toLocaleString("en")} sandboxes`;
  bench.say(title);
  const watched = async (parts: Partial<NodeSideParts>): Promise<Watched> => {
    await using fleet = await Fleet.start({ ...provided, count });
    const [node] = fleet.nodes;
    if (node === undefined) throw new Error("the fleet has no node");
    await using side = await NodeSide.start({ ...node, operation: "watch", ...parts });
    side.begin();
    await delay(WATCH_STARTS_SECONDS * 1_000);
    const { handshakes } = await fleet.counts();
    await fleet.reset();
    const before = side.cpuMs();
    await delay(WATCH_SECONDS * 1_000);
    const cpuMs = side.cpuMs() - before;
    const { healthTimesMs } = await fleet.counts();
    side.end();
    const { events, blockMs, peakRssBytes } = await side.done();
    return {
      handshakes,
      cpuPercent: cpuMs / WATCH_SECONDS / 10,
      healthASecond: healthTimesMs.length / WATCH_SECONDS,
      falseReports: events.length,
      blockMs,
      peakRssBytes,
    };
  };
  const ours = await watched({});
  const before = count === 100 ? await watched({ library }) : undefined;
  const row = (name: string, unit: string, pick: (one: Watched) => number, limit?: number): Row =>
    makeRow({
      name: `${title}: ${name}`,
      unit,
      samples: { ours: [pick(ours)], ...(before && { before: [pick(before)] }) },
      ...(limit !== undefined && { goal: { relation: "at most", limit } }),
    });
  return [
    row("false reports", "", ({ falseReports }) => falseReports, 0),
    row("Health calls per second", "", ({ healthASecond }) => healthASecond, 100),
    row("share of a core at rest", "%", ({ cpuPercent }) => cpuPercent, 10),
    row("handshakes of its start", "", ({ handshakes }) => handshakes),
    row("longest block of the event loop", "ms", ({ blockMs }) => blockMs, 100),
    row("peak memory", "MB", ({ peakRssBytes }) => peakRssBytes / MB),
  ];
}

interface Watched {
  readonly handshakes: number;
  readonly cpuPercent: number;
  readonly healthASecond: number;
  readonly falseReports: number;
  readonly blockMs: number;
  readonly peakRssBytes: number;
}

function pairOf(ours: Run, before: Run | undefined): (pick: (run: Run) => number) => Figure {
  return (pick) => ({ ours: pick(ours), before: before && pick(before) });
}

function pair(ours: Run, before: Run | undefined, pick: (run: Run) => number): Figure {
  return pairOf(ours, before)(pick);
}

function failuresOf({ result }: Run): number {
  return (result as SweepReport).failed.length;
}

function uploadsOf({ calls }: FleetCounts): number {
  return Object.entries(calls).reduce(
    (sum, [name, times]) => (name.startsWith("upload of an agent") ? sum + times : sum),
    0,
  );
}

/** Unpacks the library of the release before. Returns the path of its entry. */
async function libraryBefore(directory: string): Promise<string> {
  const target = join(directory, "before");
  await mkdir(target);
  await execa("tar", ["-xzf", join(ROOT, `compat/v${BEFORE}/client.tgz`), "-C", target]);
  await symlink(join(ROOT, "node_modules"), join(target, "node_modules"));
  return join(target, "package/lib/node/sandboxes/index.js");
}
