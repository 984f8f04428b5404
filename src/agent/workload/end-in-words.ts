import { constants } from "node:os";
import { type ProcessEnd, Signal } from "../domain/index.ts";

/** Shells and container runtimes report a command that a signal has ended as 128 and its number. */
const SIGNAL_BASE = 128;

/** How the agent was ending the workload: by a stop, or by killing its frozen session. Undefined: it was not. */
export type AgentsEnding = "stop" | "kill_frozen" | undefined;

/** Why a session is killed while it is frozen, for people. */
export const KILLED_FROZEN = "it was killed while it was frozen, as the restore duties had refused a spec file";

/**
 * What has happened to the workload, for people.
 *
 * @param oomKilled whether the out-of-memory killer struck in its cgroup; undefined: nobody counts that
 */
export function endInWords(end: ProcessEnd, oomKilled: boolean | undefined, ending: AgentsEnding): string {
  const { code, signal, coreDumped } = end;
  const how = signal === 0 ? `exited with status ${code}` : `was ended by ${nameOf(signal)}`;
  const core = coreDumped ? ", and dumped its core" : "";
  return `the workload ${how}${core}${because(end, oomKilled, ending)}`;
}

function because({ code, signal }: ProcessEnd, oomKilled: boolean | undefined, ending: AgentsEnding): string {
  const isKilled = signal === Signal.KILL || code === SIGNAL_BASE + Signal.KILL;
  if (oomKilled === true) {
    return signal === Signal.KILL
      ? ": out of memory, the kernel's out-of-memory killer has struck in it"
      : ", after the kernel's out-of-memory killer had struck in it";
  }
  if (ending === "kill_frozen") return `: ${KILLED_FROZEN}`;
  if (ending === "stop")
    return isKilled ? ": it was asked to end, and outlived its stop_grace_ms" : ", as it was asked to end";
  if (!isKilled) return "";
  return oomKilled === undefined
    ? "; whether for want of memory is not known, as no memory controller counts that"
    : ": by a process of the guest, and not for want of memory";
}

function nameOf(signal: number): string {
  const name = Object.entries(constants.signals).find(([, number]) => number === signal)?.[0];
  return name ?? `signal ${signal}`;
}
