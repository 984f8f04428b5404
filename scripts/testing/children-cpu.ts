import { readFileSync } from "node:fs";

/** proc_pid_stat(5) counts in ticks of sysconf(_SC_CLK_TCK), which Linux has at 100 Hz for every program. */
const TICK_MS = 10;

/** CPU time of the children that ended, with that of everything they had waited for. */
function endedChildrenCpuMs(): number {
  const stat = readFileSync("/proc/self/stat", "latin1");
  // The command's name may hold anything, so the fields count from its last ")"; cutime and cstime are the 16th and 17th.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[13]) + Number(fields[14])) * TICK_MS;
}

/**
 * CPU time child by child, as wait4(2) would tell and Node does not: what was added to that of all ended children since
 * the last one. Two that end at the same moment are told as one.
 */
export class ChildrenCpu {
  #takenMs = endedChildrenCpuMs();

  /** That of the child whose end was just reported, in milliseconds. */
  take(): number {
    const before = this.#takenMs;
    this.#takenMs = endedChildrenCpuMs();
    return this.#takenMs - before;
  }
}
