/**
 * A node side of a fleet in a process of its own, which can be killed and measured: `node-side.ts PARTS`, with its
 * parts as JSON. It prints "ready", waits for a line on standard input, works, and prints its result as a line of JSON.
 * A watch works until the next line.
 */
import { subscribe } from "node:diagnostics_channel";
import { readFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type * as Library from "../../src/node/sandboxes/index.ts";
import type { FleetNode } from "./fleet.ts";

/** What a node side does. */
export interface NodeSideParts extends FleetNode {
  readonly operation: "sweep" | "watch" | "list" | "create" | "rotate";
  /** The library's entry. Default: this repository's; another version's to compare with. */
  readonly library?: string;
  readonly reachTimeoutMs?: number | undefined;
  readonly agentArchive?: string | undefined;
  /** Sandboxes to create at once. */
  readonly count?: number;
}

/** What it did, and what that took of its process. */
export interface NodeSideResult {
  readonly result: unknown;
  readonly events: readonly Library.WatchEvent[];
  readonly seconds: number;
  readonly cpuMs: number;
  /**
   * The largest piece of the main thread's CPU time between two turns of the event loop: others of the machine do not
   * count.
   */
  readonly blockMs: number;
  /** The largest number of connections to agents that it began to make in one turn of the event loop. */
  readonly dialsInOneTurn: number;
  readonly peakRssBytes: number;
}

const TICK_MS = 5;
const parts = JSON.parse(process.argv[2] ?? "") as NodeSideParts;
const entry = parts.library ?? join(import.meta.dirname, "../../src/node/sandboxes/index.ts");
const { Sandboxes, connectHypeman } = (await import(entry)) as typeof Library;
/** Release 0.3.0 has another name for `stateDirectory`. */
const ofRelease030 = parts.library === undefined ? undefined : { folder: parts.directory };
const node = await Sandboxes.open({
  substrate: await connectHypeman({ baseUrl: parts.baseUrl, apiToken: "any" }),
  ...ofRelease030,
  stateDirectory: parts.directory,
  nodeId: parts.nodeId,
  agentPort: 7071,
  reachTimeoutMs: parts.reachTimeoutMs,
  agent: parts.agentArchive === undefined ? undefined : { archive: parts.agentArchive },
});
const lines = createInterface(process.stdin)[Symbol.asyncIterator]();
say("ready");
await lines.next();

const began = performance.now();
const before = process.cpuUsage();
let blockMs = 0;
let lastMs = threadMs();
const tick = (): void => {
  const now = threadMs();
  blockMs = Math.max(blockMs, now - lastMs);
  lastMs = now;
};
const ticker = setInterval(tick, TICK_MS);
let dials = 0;
let dialsInOneTurn = 0;
subscribe("guest-agent-sandboxes", (message) => {
  if ((message as Library.NodeEvent).event !== "dialling") return;
  if (++dials > 1) return;
  // Runs after everything else of this turn.
  setImmediate(() => {
    dialsInOneTurn = Math.max(dialsInOneTurn, dials);
    dials = 0;
  });
});
const events: Library.WatchEvent[] = [];
const result = await work();
clearInterval(ticker);
tick();
const used = process.cpuUsage(before);
const measured: NodeSideResult = {
  result,
  events,
  seconds: (performance.now() - began) / 1e3,
  cpuMs: (used.user + used.system) / 1e3,
  blockMs,
  dialsInOneTurn,
  peakRssBytes: Number(/^VmHWM:\s+(\d+)/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1] ?? 0) * 1024,
};
say(JSON.stringify(measured));
node.close();
process.exit(0);

async function work(): Promise<unknown> {
  const { operation, count = 0 } = parts;
  if (operation === "sweep") return node.sweep();
  if (operation === "list") return (await node.list()).length;
  if (operation === "create") {
    const image = "docker.io/library/debian:12";
    const made = Array.from({ length: count }, (_, at) => node.create({ image, name: `box-${at}` }));
    const settled = await Promise.allSettled(made);
    return settled.flatMap((each) => (each.status === "rejected" ? [String(each.reason)] : []));
  }
  const end = new AbortController();
  void lines.next().then(() => end.abort());
  await node.watch({ signal: end.signal, onEvent: (event) => events.push(event) });
  return undefined;
}

function threadMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1e3;
}

/** At once: the process may be killed. */
function say(line: string): void {
  writeSync(1, `${line}\n`);
}
