import { constants } from "node:os";
import type { ProcessEnd } from "../domain/index.ts";

const SIGKILL = 9;
/** Shells and container runtimes report a command that a signal has ended as 128 and its number. */
const SIGNAL_BASE = 128;

/**
 * What has happened to the workload, for people.
 *
 * @param oomKilled whether the out-of-memory killer struck in its cgroup; undefined: nobody counts that
 * @param isStopped the agent was ending it
 */
export function endInWords(end: ProcessEnd, oomKilled: boolean | undefined, isStopped: boolean): string {
  const { code, signal, coreDumped } = end;
  const how = signal === 0 ? `exited with status ${code}` : `was ended by ${nameOf(signal)}`;
  const core = coreDumped ? ", and dumped its core" : "";
  return `the workload ${how}${core}${because(end, oomKilled, isStopped)}`;
}

function because({ code, signal }: ProcessEnd, oomKilled: boolean | undefined, isStopped: boolean): string {
  const isKilled = signal === SIGKILL || code === SIGNAL_BASE + SIGKILL;
  if (oomKilled === true) {
    return signal === SIGKILL
      ? ": out of memory, the kernel's out-of-memory killer has struck in it"
      : ", after the kernel's out-of-memory killer had struck in it";
  }
  if (isStopped) return isKilled ? ": it was asked to end, and outlived its stop_grace_ms" : ", as it was asked to end";
  if (!isKilled) return "";
  return oomKilled === undefined
    ? "; whether for want of memory is not known, as no memory controller counts that"
    : ": by a process of the guest, and not for want of memory";
}

function nameOf(signal: number): string {
  const name = Object.entries(constants.signals).find(([, number]) => number === signal)?.[0];
  return name ?? `signal ${signal}`;
}
