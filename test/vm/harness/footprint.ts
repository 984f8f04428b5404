import { statSync } from "node:fs";
import { type AgentBuild, shippedAgent } from "./sandbox.ts";
import { Guest } from "./guest.ts";
import type { Machine } from "./machine.ts";
import { ask, pass } from "./oracle.ts";

/** In guest time: the agent counts as resting after ten seconds, and checks every ten. */
const REST_MS = 30_000;
const HOOKS = { preSnapshot: { args: ["/bin/busybox", "true"] } };

/** Memory of the agent in a guest. */
interface AgentMemory {
  /** Anonymous pages of its processes. */
  readonly anonymousBytes: number;
  /** Pages of files that are mapped there. */
  readonly mappedBytes: number;
  /** Pages of its directory in the page cache, mapped or not. */
  readonly cachedBytes: number;
}

/** What the agent adds to an idle guest. */
export interface Footprint {
  /** The guest's snapshot as QEMU writes it, without zero pages: with the agent, and without. */
  readonly withBytes: number;
  readonly withoutBytes: number;
  /** After the first Health of a guest whose page cache had none of the directory. */
  readonly afterStart: AgentMemory;
  /** After a rest and PRE_SNAPSHOT: as in the snapshot. */
  readonly atSnapshot: AgentMemory;
}

/** Asks the guest's oracle, so that the agent stays at rest. */
export async function agentMemory(machine: Machine): Promise<AgentMemory> {
  const [line = ""] = await ask(machine.oraclePort, ["memory"]);
  const [anonymousBytes = 0, mappedBytes = 0, cachedBytes = 0] = line.split(" ").map(Number);
  return { anonymousBytes, mappedBytes, cachedBytes };
}

async function snapshotBytes(guest: Guest, machine: Machine): Promise<number> {
  return statSync(await guest.snapshot(machine)).size;
}

async function withAgent(agent: AgentBuild): Promise<Omit<Footprint, "withoutBytes">> {
  using guest = await Guest.prepare({ agent, hooks: HOOKS });
  await using machine = await guest.boot();
  const afterStart = await agentMemory(machine);
  await pass(machine, REST_MS);
  using client = guest.client(machine);
  const { exitCode } = await client.snapshots.prepare();
  if (exitCode !== 0) throw new Error(`PRE_SNAPSHOT ended with ${exitCode}`);
  const atSnapshot = await agentMemory(machine);
  return { afterStart, atSnapshot, withBytes: await snapshotBytes(guest, machine) };
}

/** The same guest and volumes, with the workload as entrypoint. */
async function withoutAgent(agent: AgentBuild): Promise<number> {
  using guest = await Guest.prepare({ agent: { ...agent, command: ["/bin/workload"] } });
  await using machine = await guest.start();
  await pass(machine, REST_MS);
  return await snapshotBytes(guest, machine);
}

/** Measures two guests that differ only in the agent, one after the other. Default agent: dist's. */
export async function measureFootprint(agentDirectory?: string): Promise<Footprint> {
  const agent = shippedAgent(agentDirectory);
  return { ...(await withAgent(agent)), withoutBytes: await withoutAgent(agent) };
}
