import { readFileSync } from "node:fs";
import { cpuMs } from "../../test/fixtures/cpu.ts";

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
  const [cpuBefore, readBefore] = [cpuMs(pid), readBytes(pid)];
  const connections = await work();
  return { connections, cpuMs: cpuMs(pid) - cpuBefore, readMib: (readBytes(pid) - readBefore) / MIB };
}

/** Adds costs up. */
export function sum(costs: readonly Cost[]): Cost {
  const total = (name: keyof Cost): number => costs.reduce((all, cost) => all + cost[name], 0);
  return { connections: total("connections"), cpuMs: total("cpuMs"), readMib: total("readMib") };
}

/** Bytes that the agent has read from its files and sockets so far: `rchar` of proc_pid_io(5). */
function readBytes(pid: number): number {
  return Number(/^rchar: (\d+)$/m.exec(readFileSync(`/proc/${pid}/io`, "latin1"))?.[1]);
}
