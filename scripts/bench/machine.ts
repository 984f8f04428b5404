import { readFileSync } from "node:fs";
import { availableParallelism, cpus, release, totalmem } from "node:os";

/** Where it was measured. */
export interface Machine {
  readonly processor: string;
  readonly cores: number;
  readonly memoryGib: number;
  readonly kernel: string;
  readonly system: string;
  /** Of the last minute, when it began: a figure of a busy machine is worth little. */
  readonly loadAverage: number;
}

/** This machine. */
export function describeMachine(): Machine {
  const [, system = "Linux"] = /^PRETTY_NAME="(.*)"$/m.exec(readFileSync("/etc/os-release", "utf8")) ?? [];
  return {
    processor: cpus()[0]?.model ?? "unknown",
    cores: availableParallelism(),
    memoryGib: Math.round(totalmem() / 2 ** 30),
    kernel: release(),
    system,
    loadAverage: Number(readFileSync("/proc/loadavg", "utf8").split(" ", 1)[0]),
  };
}
