import { readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";

/** How long the machine must be idle, and the interval of the polls. */
const MOMENT_MS = 250;
const POLLS = 20;
/** Of all CPU time, waits for disks included. A single busy program leaves a half on two CPUs, and nothing on one. */
const IDLE_SHARE = 0.75;
/** Places of idle and iowait in /proc/stat's first line, after its name (proc_stat(5)); the eighth is stolen time. */
const IDLE = 3;
const IOWAIT = 4;
const STATES = 8;

interface CpuTime {
  readonly idle: number;
  readonly all: number;
}

function cpuTime(): CpuTime {
  const [, ...times] = readFileSync("/proc/stat", "latin1").split("\n", 1)[0]?.split(/ +/) ?? [];
  const ticks = times.slice(0, STATES).map(Number);
  return { idle: (ticks[IDLE] ?? 0) + (ticks[IOWAIT] ?? 0), all: ticks.reduce((sum, count) => sum + count, 0) };
}

/** Waits up to 5 s for an idle moment. False: none came, no /proc, or aborted. Keeps no process alive. */
export async function machineIsIdle(signal: AbortSignal): Promise<boolean> {
  try {
    let before = cpuTime();
    for (let poll = 0; poll < POLLS; poll++) {
      await delay(MOMENT_MS, undefined, { ref: false, signal });
      const now = cpuTime();
      if (now.idle - before.idle > IDLE_SHARE * (now.all - before.all)) return true;
      before = now;
    }
  } catch {
    // No /proc, or nobody needs to know any more.
  }
  return false;
}
