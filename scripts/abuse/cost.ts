import { readdirSync, readFileSync } from "node:fs";

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

/** The cost of the cheapest connections: whatever else runs on the machine only adds to it, even on another processor. */
export function least(costs: readonly Cost[]): Cost {
  const [cheapest] = costs.toSorted((a, b) => a.cpuMs / a.connections - b.cpuMs / b.connections);
  if (cheapest === undefined) throw new Error("nothing was measured");
  return cheapest;
}

/** Processor time of a process's threads so far, to the nanosecond (schedstat of the kernel's sched-stats.rst), in milliseconds. */
function cpuMs(pid: number): number {
  const threads = readdirSync(`/proc/${pid}/task`);
  const times = threads.map((thread) =>
    Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, "latin1").split(" ")[0]),
  );
  return times.reduce((all, time) => all + time, 0) / 1e6;
}

/** Bytes that the agent has read from its files and sockets so far: `rchar` of proc_pid_io(5). */
function readBytes(pid: number): number {
  return Number(/^rchar: (\d+)$/m.exec(readFileSync(`/proc/${pid}/io`, "latin1"))?.[1]);
}
