import { existsSync } from "node:fs";
import { mkdtempDisposable } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { GuestError } from "../../src/node/client/index.ts";
import { messageOf } from "../../src/shared/errors.ts";
import { type RunningAgent, startAgent } from "../fixtures/agent.ts";
import { type Footprint, settledFootprint } from "../fixtures/footprint.ts";
import { clientOf } from "../fixtures/guest-client.ts";
import { cpuMsOf, memoryOf } from "../fixtures/proc.ts";
import { execStart } from "../fixtures/raw-calls.ts";
import { RawHttp2 } from "../fixtures/raw-http2.ts";
import { seededRandom } from "../fixtures/seeded-random.ts";
import { type Attack, ATTACKED_COMMAND, type Outcome } from "./attack.ts";

/** An attack that takes longer counts as hung. */
const ATTACK_LIMIT_MS = 600_000;
/** Limit for Health beside any attack. */
const ANSWER_LIMIT_MS = 20_000;
const WARM_UP = 50;
const PROBE_PAUSE_MS = 20;
/** Not counted as leaks: the probe's connection, which restores replace, and threads that the agent keeps for reuse. */
const SLACK: Footprint = { descriptors: 2, threads: 4, cgroups: 0, processes: 0, zombies: 0 };

/** Outcome of an attack, with the attack's own figures. */
export interface AbuseRow extends Outcome {
  readonly name: string;
  /** CPU time of the agent itself. */
  readonly cpuSeconds: number;
  readonly peakOwnBytes: number;
  /** Leftovers: what the agent holds in addition; empty: nothing. */
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
  /** Time for the agent to answer Health, whatever the attack. Default: 20 s. */
  readonly answerLimitMs?: number;
  readonly onRow: (row: AbuseRow) => void;
}

/** Runs all attacks in turn on one agent. One that it does not survive is the last. */
export async function abuse(options: AbuseOptions): Promise<void> {
  const { seed, inputs, attacks, answerLimitMs = ANSWER_LIMIT_MS, onRow } = options;
  await using agent = await startAgent({ command: ATTACKED_COMMAND, hooks: { preSnapshot: { args: ["true"] } } });
  await using scratch = await mkdtempDisposable(join(tmpdir(), "guest-agent-abuse-"));
  await using probe = new Probe(agent, answerLimitMs);
  const weights = attacks.reduce((sum, { weight }) => sum + weight, 0);
  await warmUp(agent);
  for (const attack of attacks) {
    const { name, weight } = attack;
    const share = Math.max(1, Math.floor((inputs * weight) / weights));
    const target = { agent, random: seededRandom(seed), scratch: scratch.path, inputs: share, quietly: probe.quietly };
    try {
      await probe.seen();
      const before = await settledFootprint(agent.pid, undefined, isNoLarger);
      const cpuBeganMs = cpuMsOf(agent.pid);
      const outcome = await outcomeOf(attack.run(target));
      const cpuSeconds = (cpuMsOf(agent.pid) - cpuBeganMs) / 1000;
      const left = difference(before, await settledFootprint(agent.pid, before, isNoLarger));
      const { unanswered, peakOwnBytes } = await probe.seen();
      if (outcome.problem === "" && unanswered > 0)
        outcome.problem = `Health got no answer within ${answerLimitMs / 1000} s`;
      onRow({ name, cpuSeconds, left, peakOwnBytes, ...outcome });
    } catch (error) {
      // An agent that has ended has no footprint.
      if (existsSync(`/proc/${agent.pid}`)) throw error;
      const nothing = { inputs: 0, cpuSeconds: 0, peakOwnBytes: 0, left: "", measured: "" };
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

/** What the attack did, with the problem of one that failed. */
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

/** What the agent holds in addition; empty: nothing. */
function difference(before: Footprint, after: Footprint): string {
  return (Object.keys(before) as (keyof Footprint)[])
    .filter((name) => after[name] > before[name] + SLACK[name])
    .map((name) => `${after[name] - before[name]} ${name}`)
    .join(", ");
}

const isNoLarger = (before: Footprint, after: Footprint): boolean => difference(before, after) === "";

/** Calls Health beside the attacks as a node agent does, and samples the agent's memory. */
class Probe implements AsyncDisposable {
  #isPaused = false;
  #seen = { unanswered: 0, peakOwnBytes: 0 };
  #looked = Promise.withResolvers<void>();
  readonly #over = new AbortController();
  readonly #ended: Promise<void>;

  constructor(agent: RunningAgent, timeoutMs: number) {
    this.#ended = this.#run(agent, timeoutMs);
  }

  /** Runs `work` without these calls. */
  readonly quietly = async (work: () => Promise<void>): Promise<void> => {
    this.#isPaused = true;
    await work();
    this.#isPaused = false;
  };

  /** The observations since the last call, with that of the call that was under way. */
  async seen(): Promise<{ readonly unanswered: number; readonly peakOwnBytes: number }> {
    this.#looked = Promise.withResolvers();
    await this.#looked.promise;
    const seen = this.#seen;
    this.#seen = { unanswered: 0, peakOwnBytes: 0 };
    return seen;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#over.abort();
    await this.#ended;
  }

  async #run(agent: RunningAgent, timeoutMs: number): Promise<void> {
    using client = clientOf(agent);
    while (!this.#over.signal.aborted) {
      try {
        if (!this.#isPaused) await client.health({ requestTimeoutMs: timeoutMs });
        this.#seen.peakOwnBytes = Math.max(this.#seen.peakOwnBytes, memoryOf(agent.pid).ownBytes);
      } catch (error) {
        // Those whose connection a restore ended do not count, nor those of an agent that has ended.
        if (error instanceof GuestError && error.status === "DEADLINE_EXCEEDED") this.#seen.unanswered += 1;
      }
      this.#looked.resolve();
      await delay(PROBE_PAUSE_MS);
    }
  }
}
