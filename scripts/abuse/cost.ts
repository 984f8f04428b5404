import { readFileSync } from "node:fs";
import { cpuMsOf } from "../bench/proc.ts";

const MIB = 2 ** 20;

/** A cost to the agent. */
export interface Cost {
  readonly connections: number;
  readonly cpuMs: number;
  /** Bytes that the agent read. */
  readonly readMib: number;
}

/** Measures what the agent spends while `work` runs, which resolves with its number of connections. */
export async function costOf(pid: number, work: () => Promise<number>): Promise<Cost> {
  const [cpuBefore, readBefore] = [cpuMsOf([pid]), readBytes(pid)];
  const connections = await work();
  return { connections, cpuMs: cpuMsOf([pid]) - cpuBefore, readMib: (readBytes(pid) - readBefore) / MIB };
}

/** The cost of the cheapest connections: whatever else runs on the machine only adds to it, even on another processor. */
export function least(costs: readonly Cost[]): Cost {
  const [cheapest] = costs.toSorted((a, b) => a.cpuMs / a.connections - b.cpuMs / b.connections);
  if (cheapest === undefined) throw new Error("nothing was measured");
  return cheapest;
}

/** Bytes that the agent has read from its files and sockets so far: `rchar` of proc_pid_io(5). */
function readBytes(pid: number): number {
  return Number(/^rchar: (\d+)$/m.exec(readFileSync(`/proc/${pid}/io`, "latin1"))?.[1]);
}
