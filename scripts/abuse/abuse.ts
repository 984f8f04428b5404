import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { messageOf } from "../../src/domain/index.ts";
import { type RunningAgent, startAgent } from "../../test/fixtures/agent.ts";
import { execStart } from "../../test/fixtures/raw-calls.ts";
import { RawHttp2 } from "../../test/fixtures/raw-http2.ts";
import { seededRandom } from "../../test/fixtures/seeded-random.ts";
import { type Footprint, settledFootprint } from "../soak/footprint.ts";
import type { Attack } from "./attack.ts";
import { connectionAttacks } from "./connections.ts";
import { fuzzing } from "./fuzz.ts";
import { keptAttacks } from "./kept.ts";
import type { Seen, Watched } from "./probe.ts";

import { workloadAttacks } from "./workload.ts";

/** All attacks, in order. */
export const ATTACKS: readonly Attack[] = [...fuzzing, ...connectionAttacks, ...keptAttacks, ...workloadAttacks];

/** Limit of the agent's anonymous memory over all attacks. */
export const PEAK_LIMIT_BYTES: number = 128 * 2 ** 20;
/** An attack that takes longer counts as hung. */
const ATTACK_LIMIT_MS = 600_000;
const WARM_UP = 50;
/** That stay when the agent is told to leave, each beside one that never spoke. */
const UNREAD_PEERS = 8;
/** Time for an attack's leftovers to go: more than the longest of the agent's limits. */
const SETTLE_LIMIT_MS = 30_000;
/** Time for the agent's exit on a busy machine: it waits for commands and connections. */
const LEAVE_LIMIT_MS = 20_000;

/** Outcome of an attack. */
export interface AbuseRow {
  readonly name: string;
  readonly inputs: number;
  readonly seconds: number;
  readonly healthP99Ms: number;
  readonly peakOwnBytes: number;
  /** What the agent holds in addition; empty: nothing. */
  readonly left: string;
  /** The failure; empty: none. */
  readonly problem: string;
}

/** Options of a run. */
export interface AbuseOptions {
  readonly seed: number;
  /** Approximate number of inputs. */
  readonly inputs: number;
  readonly attacks: readonly Attack[];
  readonly onRow: (row: AbuseRow) => void;
}

/** Runs all attacks on one agent in turn, and ends it while peers that do not read stay connected. */
export async function abuse({ seed, inputs, attacks, onRow }: AbuseOptions): Promise<void> {
  await using agent = await startAgent({ hooks: { preSnapshot: { args: ["true"] } } });
  const scratch = await mkdtemp(join(tmpdir(), "guest-agent-abuse-"));
  const probe = startProbe(agent);
  const weights = attacks.reduce((sum, { weight }) => sum + weight, 0);
  try {
    await warmUp(agent);
    for (const attack of attacks) {
      await probe.seen();
      const random = seededRandom(seed);
      const share = Math.max(1, Math.floor((inputs * attack.weight) / weights));
      const before = await settled(agent, undefined);
      const began = performance.now();
      const outcome = await outcomeOf(attack.run({ agent, random, scratch, inputs: share }));
      const seconds = (performance.now() - began) / 1000;
      const left = difference(before, await settled(agent, before));
      const seen = await probe.seen();
      onRow({ name: attack.name, seconds, left, ...outcome, ...measured(seen) });
    }
    onRow(await endUnread(agent, probe));
  } finally {
    await probe.stop();
    await rm(scratch, { recursive: true, force: true });
  }
}

/** Warms the agent up, so that the first footprint has what it opens once or keeps ready for the next command. */
async function warmUp(agent: RunningAgent): Promise<void> {
  const message = execStart({ args: ["true"] });
  using peer = await RawHttp2.dial(agent);
  const streams = Array.from({ length: WARM_UP }, () => peer.call("Exec", agent.token, message));
  await peer.holds(() => streams.every((stream) => peer.hasClosed(stream)));
}

type Outcome = Pick<AbuseRow, "inputs" | "problem">;

async function outcomeOf(running: Promise<number>): Promise<Outcome> {
  const late = delay(ATTACK_LIMIT_MS, undefined, { ref: false }).then(() => {
    throw new Error("it hangs");
  });
  try {
    return { inputs: await Promise.race([running, late]), problem: "" };
  } catch (error) {
    return { inputs: 0, problem: messageOf(error) };
  }
}

function measured({ healthMs, peakOwnBytes }: Seen): Pick<AbuseRow, "healthP99Ms" | "peakOwnBytes"> {
  const sorted = healthMs.toSorted((a, b) => a - b);
  return { healthP99Ms: sorted[Math.floor(sorted.length * 0.99)] ?? Number.POSITIVE_INFINITY, peakOwnBytes };
}

/** SIGTERM while commands write to peers that do not read, and half-open connections wait. */
async function endUnread(agent: RunningAgent, probe: Probe): Promise<AbuseRow> {
  const start = execStart({ args: ["sh", "-c", "trap '' HUP TERM; yes"] });
  using peers = new DisposableStack();
  for (let index = 0; index < UNREAD_PEERS; index++) {
    const peer = peers.use(await RawHttp2.dial(agent, { windowBytes: 0 }));
    for (let count = 0; count < 4; count++) peer.call("Exec", agent.token, start, false);
    peers.use(await RawHttp2.dial(agent, { isSilent: true }));
    await peer.holds(() => peer.answered.size === 4);
    peer.stopReading();
  }
  const seen = await probe.seen();
  await probe.stop();
  const began = performance.now();
  agent.kill("SIGTERM");
  const exit = await Promise.race([agent.exited, delay(LEAVE_LIMIT_MS, undefined, { ref: false })]);
  const seconds = (performance.now() - began) / 1000;
  const problem =
    exit === undefined
      ? `it did not leave within ${LEAVE_LIMIT_MS / 1000} s`
      : exit.code === 0
        ? ""
        : `it left with ${JSON.stringify(exit)}`;
  return {
    name: "SIGTERM among peers that do not read",
    inputs: 2 * UNREAD_PEERS,
    seconds,
    left: "",
    problem,
    ...measured(seen),
  };
}

/** The footprint once it is no larger than the wanted one; without one, once it has not changed for a second. */
function settled(agent: RunningAgent, wanted: Footprint | undefined): Promise<Footprint> {
  const isSettled = (now: Footprint, repeats: number): boolean =>
    wanted === undefined ? repeats >= 10 : difference(wanted, now) === "";
  return settledFootprint(agent.pid, isSettled, SETTLE_LIMIT_MS);
}

/**
 * The probe's own connection comes and goes with restores, and threads that the agent keeps for later work are no leak.
 */
function difference(before: Footprint, after: Footprint): string {
  const SLACK: Footprint = { descriptors: 2, threads: 4, cgroups: 0, processes: 0, zombies: 0 };
  return (Object.keys(before) as (keyof Footprint)[])
    .filter((name) => after[name] > before[name] + SLACK[name])
    .map((name) => `${after[name] - before[name]} ${name}`)
    .join(", ");
}

interface Probe {
  /** The observations since the last call. */
  seen(): Promise<Seen>;
  stop(): Promise<void>;
}

function startProbe(agent: RunningAgent): Probe {
  const { pid, port, token } = agent;
  const { ca, client } = agent.certificates;
  const watched: Watched = { pid, port, token, certificates: { ca, client } };
  const worker = new Worker(new URL("./probe.ts", import.meta.url), { workerData: watched });
  const failed = once(worker, "error").then((errors: unknown[]): never => {
    throw errors[0];
  });
  // The next call reports it.
  failed.catch(() => undefined);
  return {
    seen: async () => {
      worker.postMessage("seen", []);
      const message: unknown[] = await Promise.race([once(worker, "message"), failed]);
      return message[0] as Seen;
    },
    stop: async () => {
      await worker.terminate();
    },
  };
}
