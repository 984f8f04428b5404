import { spawn } from "node:child_process";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import type { RunningAgent } from "../fixtures/agent.ts";
import { until } from "../fixtures/awake.ts";
import { execStart } from "../fixtures/raw-calls.ts";
import { RawHttp2 } from "../fixtures/raw-http2.ts";
import { childrenOf, cpuMsOf } from "../fixtures/proc.ts";
import type { Attack, Outcome, Target } from "./attack.ts";

const EXECS = 250;
const CONNECTIONS = 4;
const IDLE_PROCESSES = 4_000;
const ANSWER_LIMIT_MS = 60_000;
/**
 * Beside the processes the ends may cost so many times what they cost beside none. An agent that reads all of /proc for
 * each end needs 20 times as much. With one reading for all, the ratio is 0.8 to 1.4 on a busy machine.
 */
const RATIO_LIMIT = 2;
const CPU_LIMIT_MS = 400;
/** What the agent may spend before it answers a Health that arrives meanwhile. */
const LATE_LIMIT_MS = 100;
/** The least of so many runs counts: what else runs on the machine only adds. */
const RUNS = 3;
/** Forks so many children that only wait. */
const CROWD = 'i=0; while [ $i -lt "$0" ]; do read line <&3 & i=$((i+1)); done; echo up; wait';

interface Ends {
  readonly cpuMs: number;
  readonly lateMs: number;
}

/** So many idle processes beside the agent. */
async function crowd(count: number): Promise<AsyncDisposable> {
  const stdio = ["ignore", "pipe", "inherit", "pipe"] as const;
  const shell = spawn("sh", ["-c", CROWD, String(count)], { detached: true, stdio: [...stdio] });
  const ended = once(shell, "exit");
  await once(shell.stdout ?? shell, "data");
  return {
    [Symbol.asyncDispose]: async () => {
      if (shell.pid !== undefined) process.kill(-shell.pid, "SIGKILL");
      await ended;
    },
  };
}

/** Runs many commands whose clients leave all at once. */
async function endAtOnce(agent: RunningAgent): Promise<Ends> {
  using peers = new DisposableStack();
  const message = execStart({ args: ["sleep", "1000"] });
  const before = childrenOf(agent.pid).length;
  const dialled = [];
  for (let index = 0; index < CONNECTIONS; index++) dialled.push(peers.use(await RawHttp2.dial(agent)));
  for (let index = 0; index < EXECS; index++) dialled[index % CONNECTIONS]?.call("Exec", agent.token, message, false);
  await until(() => childrenOf(agent.pid).length - before === EXECS, "all run");
  await rested(agent.pid);
  using observer = await RawHttp2.dial(agent);
  const beganMs = cpuMsOf(agent.pid);
  let lateMs = 0;
  for (const peer of dialled) peer[Symbol.dispose]();
  while (childrenOf(agent.pid).length > before) {
    const askedMs = cpuMsOf(agent.pid);
    const stream = observer.call("Health", agent.token, new Uint8Array());
    if (!(await observer.holds(() => observer.hasClosed(stream), ANSWER_LIMIT_MS))) throw new Error("no answer");
    lateMs = Math.max(lateMs, cpuMsOf(agent.pid) - askedMs);
    await delay(20);
  }
  await rested(agent.pid);
  return { cpuMs: cpuMsOf(agent.pid) - beganMs, lateMs };
}

/** Resolves once the agent spends next to nothing. */
async function rested(pid: number): Promise<void> {
  for (let before = -Infinity, now = cpuMsOf(pid); now - before > 1; before = now, now = cpuMsOf(pid)) await delay(200);
}

async function least(agent: RunningAgent): Promise<Ends> {
  const runs: Ends[] = [];
  for (let run = 0; run < RUNS; run++) runs.push(await endAtOnce(agent));
  return {
    cpuMs: Math.min(...runs.map(({ cpuMs }) => cpuMs)),
    lateMs: Math.min(...runs.map(({ lateMs }) => lateMs)),
  };
}

/** Hundreds of commands that end together must not cost more where many processes live. */
async function endTogether(target: Target): Promise<Outcome> {
  const measurements: Ends[] = [];
  const { agent } = target;
  await target.quietly(async () => {
    await endAtOnce(agent);
    measurements.push(await least(agent));
    await using _crowd = await crowd(IDLE_PROCESSES);
    measurements.push(await least(agent));
  });
  const [alone, beside] = measurements;
  if (alone === undefined || beside === undefined) throw new Error("nothing was measured");
  const measured =
    `${EXECS} ends: ${alone.cpuMs.toFixed(0)} ms of CPU, beside ${IDLE_PROCESSES} processes ${beside.cpuMs.toFixed(0)}; ` +
    `Health late by ${alone.lateMs.toFixed(0)} and ${beside.lateMs.toFixed(0)} ms of CPU`;
  const held =
    alone.cpuMs <= CPU_LIMIT_MS && beside.cpuMs <= RATIO_LIMIT * alone.cpuMs && beside.lateMs <= LATE_LIMIT_MS;
  if (!held) throw new Error(measured);
  return { inputs: 2 * (RUNS + 1) * EXECS, measured };
}

export const endAttacks: readonly Attack[] = [{ name: "ends of many commands at once", weight: 1, run: endTogether }];
