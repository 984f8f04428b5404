import { existsSync } from "node:fs";
import { mkdtempDisposable } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { GuestError } from "../../src/node/client/index.ts";
import { messageOf } from "../../src/shared/errors.ts";
import { type RunningAgent, startAgent } from "../fixtures/agent.ts";
import { cpuMsOf, memoryOf } from "../fixtures/proc.ts";
import { execStart } from "../fixtures/raw-calls.ts";
import { RawHttp2 } from "../fixtures/raw-http2.ts";
import { seededRandom } from "../fixtures/seeded-random.ts";
import { type Footprint, settledFootprint } from "../fixtures/footprint.ts";
import { clientOf } from "../fixtures/guest-client.ts";
import type { Attack, Outcome, Target } from "./attack.ts";
import { floods, unreadAttacks } from "./floods.ts";
import { endAttacks } from "./ends.ts";
import { fuzzing } from "./fuzz.ts";
import { mixedExecs } from "./mix.ts";
import { storms } from "./storms.ts";
import { unknownPeerAttacks } from "./unknown-peers.ts";

/** All attacks, in order. */
export const ATTACKS: readonly Attack[] = [
  ...fuzzing,
  ...unknownPeerAttacks,
  ...storms,
  ...endAttacks,
  ...unreadAttacks,
  ...floods,
  ...mixedExecs,
];

/** Limit of the agent's anonymous memory over all attacks. */
export const PEAK_LIMIT_BYTES: number = 128 * 2 ** 20;
/** An attack that takes longer counts as hung. */
const ATTACK_LIMIT_MS = 600_000;
/** Limit for Health beside any attack. */
const ANSWER_LIMIT_MS = 20_000;
const WARM_UP = 50;
const PROBE_PAUSE_MS = 20;

/** Outcome of an attack. */
export interface AbuseRow {
  readonly name: string;
  readonly inputs: number;
  readonly seconds: number;
  /** CPU time of the agent itself. */
  readonly cpuSeconds: number;
  /** Latencies of Health on its own connection beside the attack. Not judged: they depend on the machine's load. */
  readonly health: { readonly p50Ms: number; readonly p99Ms: number; readonly maxMs: number };
  readonly peakOwnBytes: number;
  /** Leftovers: what the agent holds in addition; empty: nothing. */
  readonly left: string;
  /** The failure; empty: none. */
  readonly problem: string;
  /** The attack's own figures. */
  readonly measured: string;
}

/** Options of a run. */
export interface AbuseOptions {
  readonly seed: number;
  /** Approximate number of inputs. */
  readonly inputs: number;
  readonly attacks: readonly Attack[];
  /** Time for the agent to answer Health, whatever the attack. Default: 20 s. */
  readonly answerLimitMs?: number;
  readonly onRow: (row: AbuseRow) => void;
}

/** Runs all attacks in turn on one agent. One that it does not survive is the last. */
export async function abuse(options: AbuseOptions): Promise<void> {
  const { seed, inputs, attacks, answerLimitMs = ANSWER_LIMIT_MS, onRow } = options;
  await using agent = await startAgent({ hooks: { preSnapshot: { args: ["true"] } } });
  await using scratch = await mkdtempDisposable(join(tmpdir(), "guest-agent-abuse-"));
  await using probe = startProbe(agent, answerLimitMs);
  const weights = attacks.reduce((sum, { weight }) => sum + weight, 0);
  await warmUp(agent);
  for (const attack of attacks) {
    const { name, weight } = attack;
    const target: Target = {
      agent,
      random: seededRandom(seed),
      scratch: scratch.path,
      inputs: Math.max(1, Math.floor((inputs * weight) / weights)),
      quietly: probe.quietly,
    };
    try {
      await probe.seen();
      const before = await settledFootprint(agent.pid, undefined, isNoLarger);
      const began = performance.now();
      const cpuBeganMs = cpuMsOf(agent.pid);
      const outcome = await outcomeOf(attack.run(target));
      const seconds = (performance.now() - began) / 1000;
      const cpuSeconds = (cpuMsOf(agent.pid) - cpuBeganMs) / 1000;
      const left = difference(before, await settledFootprint(agent.pid, before, isNoLarger));
      const { unanswered, ...seen } = await probe.seen();
      if (outcome.problem === "" && unanswered > 0)
        outcome.problem = `Health got no answer within ${answerLimitMs / 1000} s`;
      onRow({ name, seconds, cpuSeconds, left, ...outcome, ...seen });
    } catch (error) {
      // An agent that has ended has no footprint.
      if (existsSync(`/proc/${agent.pid}`)) throw error;
      const health = { p50Ms: Infinity, p99Ms: Infinity, maxMs: Infinity };
      const nothing = { inputs: 0, seconds: 0, cpuSeconds: 0, health, peakOwnBytes: 0, left: "", measured: "" };
      onRow({ name, ...nothing, problem: "the agent has died" });
      return;
    }
  }
}

/** Warms the agent up, so that the first footprint has what it opens once or keeps ready for the next command. */
async function warmUp(agent: RunningAgent): Promise<void> {
  const message = execStart({ args: ["true"] });
  using peer = await RawHttp2.dial(agent);
  const streams = Array.from({ length: WARM_UP }, () => peer.call("Exec", agent.token, message));
  await peer.holds(() => streams.every((stream) => peer.hasClosed(stream)));
}

async function outcomeOf(running: ReturnType<Attack["run"]>): Promise<Outcome & { problem: string }> {
  const late = delay(ATTACK_LIMIT_MS, undefined, { ref: false }).then(() => {
    throw new Error("it hangs");
  });
  try {
    const done = await Promise.race([running, late]);
    return { ...(typeof done === "number" ? { inputs: done, measured: "" } : done), problem: "" };
  } catch (error) {
    return { inputs: 0, measured: "", problem: messageOf(error) };
  }
}

/** The probe's own connection comes and goes with restores, and threads that the agent keeps for later are no leak. */
function difference(before: Footprint, after: Footprint): string {
  const SLACK: Footprint = { descriptors: 2, threads: 4, cgroups: 0, processes: 0, zombies: 0 };
  return (Object.keys(before) as (keyof Footprint)[])
    .filter((name) => after[name] > before[name] + SLACK[name])
    .map((name) => `${after[name] - before[name]} ${name}`)
    .join(", ");
}

function isNoLarger(before: Footprint, after: Footprint): boolean {
  return difference(before, after) === "";
}

interface Probe extends AsyncDisposable {
  readonly quietly: Target["quietly"];
  /** The observations since the last call, with that of the call that was under way. */
  seen(): Promise<Pick<AbuseRow, "health" | "peakOwnBytes"> & { readonly unanswered: number }>;
}

/** Calls Health beside the attacks as a node agent does, and samples the agent's memory. */
function startProbe(agent: RunningAgent, timeoutMs: number): Probe {
  const client = clientOf(agent);
  let [healthMs, unanswered, peakOwnBytes]: [number[], number, number] = [[], 0, 0];
  let isPaused = false;
  const over = new AbortController();
  let looked = Promise.withResolvers<void>();
  const ended = (async () => {
    while (!over.signal.aborted) {
      const began = performance.now();
      try {
        if (!isPaused) await client.health({ timeoutMs });
        if (!isPaused) healthMs.push(performance.now() - began);
        peakOwnBytes = Math.max(peakOwnBytes, memoryOf(agent.pid).ownBytes);
      } catch (error) {
        // Those whose connection a restore ended do not count, nor those of an agent that has ended.
        if (error instanceof GuestError && error.status === "DEADLINE_EXCEEDED") unanswered += 1;
      }
      looked.resolve();
      await delay(PROBE_PAUSE_MS);
    }
  })();
  return {
    quietly: async (work) => {
      isPaused = true;
      await work();
      isPaused = false;
    },
    seen: async () => {
      looked = Promise.withResolvers();
      await looked.promise;
      const sorted = healthMs.toSorted((a, b) => a - b);
      const at = (share: number): number => sorted[Math.floor(sorted.length * share)] ?? Infinity;
      const health = { p50Ms: at(0.5), p99Ms: at(0.99), maxMs: sorted.at(-1) ?? Infinity };
      const seen = { unanswered, peakOwnBytes, health };
      [healthMs, unanswered, peakOwnBytes] = [[], 0, 0];
      return seen;
    },
    [Symbol.asyncDispose]: async () => {
      over.abort();
      await ended;
      client.close();
    },
  };
}
