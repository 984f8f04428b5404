import { dirname } from "node:path";
import { Guest } from "../../vm/harness/guest.ts";
import { goAgent, HOOKS, measureForks } from "../../vm/harness/resume.ts";
import { type AgentBuild, shippedAgent } from "../../vm/harness/sandbox.ts";
import type { Programs } from "../field.ts";
import { type Contender, makeRow, type Row, samplesOf } from "../row.ts";

/** Clones of one snapshot that are resumed at the same time. */
const CLONES = 4;
const ROUNDS = 3;
const WARM_UP_COMMANDS = 50;
const COMMAND = ["/bin/busybox", "true"];
const NOTE = "client on the host, mutual TLS, over the guest's network card";

/** The agent and its peer, as guests have them. */
function agentsOf({ agentProgram, native }: Programs): readonly (readonly [Contender, AgentBuild])[] {
  return [
    ["ours", shippedAgent(dirname(agentProgram))],
    ["grpc-go", goAgent(native)],
  ];
}

/** Commands in a running guest. The two guests take turns, and a peer's guest is idle meanwhile. */
export async function guestCommandRows(programs: Programs, count: number): Promise<readonly Row[]> {
  programs.say("commands in a guest");
  await using booted = new AsyncDisposableStack();
  const clients: (readonly [Contender, ReturnType<Guest["client"]>])[] = [];
  for (const [contender, agent] of agentsOf(programs)) {
    const guest = booted.use(await Guest.prepare({ agent, hooks: HOOKS }));
    const machine = booted.use(await guest.boot());
    const client = booted.use(guest.client(machine));
    for (let done = 0; done < WARM_UP_COMMANDS; done += 1) await client.run(COMMAND);
    clients.push([contender, client]);
  }
  const runs = new Map<Contender, (readonly number[])[]>();
  for (let round = 0; round < ROUNDS; round += 1)
    for (const [contender, client] of round % 2 === 0 ? clients : clients.toReversed()) {
      const times: number[] = [];
      for (let done = 0; done < count; done += 1) {
        const began = performance.now();
        await client.run(COMMAND);
        times.push(performance.now() - began);
      }
      runs.getOrInsert(contender, []).push(times.toSorted((a, b) => a - b));
    }
  const row = (name: string, part: number): Row =>
    makeRow({
      name,
      unit: "ms",
      samples: samplesOf(runs, (times) => times[Math.ceil(times.length * part) - 1]),
      note: NOTE,
    });
  return [row("a command in a guest, p50", 0.5), row("a command in a guest, p99", 0.99)];
}

/** Clones of one snapshot, as a fork of a sandbox makes them. */
export async function forkRows(programs: Programs): Promise<readonly Row[]> {
  programs.say("clones of one snapshot");
  const runs = new Map<Contender, readonly (readonly number[])[]>();
  for (const [contender, agent] of agentsOf(programs)) runs.set(contender, [await measureForks(agent, CLONES)]);
  const note = `${CLONES} clones resumed at the same time: restore steps, POST_RESTORE, Health and a command in each`;
  const row = (name: string, pick: (times: readonly number[]) => number): Row =>
    makeRow({ name, unit: "ms", samples: samplesOf(runs, pick), note });
  return [
    row("fork to the first command, first clone", (times) => Math.min(...times)),
    row("fork to the first command, last clone", (times) => Math.max(...times)),
  ];
}
