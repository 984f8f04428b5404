import { readFileSync } from "node:fs";
import { cpuMsOf } from "../bench/proc.ts";

const MIB = 2 ** 20;

/** What one connection costs the agent. */
export interface Cost {
  readonly cpuMs: number;
  /** What the agent read of it. */
  readonly readMib: number;
}

/** Measures what the agent spends on so many connections while `work` runs. */
export async function costOf(pid: number, connections: number, work: () => Promise<unknown>): Promise<Cost> {
  const [cpuBefore, readBefore] = [cpuMsOf([pid]), readBytes(pid)];
  await work();
  return {
    cpuMs: (cpuMsOf([pid]) - cpuBefore) / connections,
    readMib: (readBytes(pid) - readBefore) / MIB / connections,
  };
}

/** Bytes that the agent has read from its files and sockets so far: `rchar` of proc_pid_io(5). */
function readBytes(pid: number): number {
  return Number(/^rchar: (\d+)$/m.exec(readFileSync(`/proc/${pid}/io`, "latin1"))?.[1]);
}
