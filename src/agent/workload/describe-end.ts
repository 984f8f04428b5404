import { constants } from "node:os";
import { type ProcessEnd, Signal } from "../domain/index.ts";

/**
 * If a signal has ended a command, shells and container runtimes report 128 plus the signal's number as the exit
 * status.
 */
const SIGNAL_BASE = 128;

/** Why the agent ended the workload: on request, or by killing the frozen session. Undefined if it ended otherwise. */
export type EndedByAgent = "stop" | "kill_frozen" | undefined;

/** Message for a session that was killed while it was frozen. */
export const KILLED_FROZEN =
  "the agent killed it while it was frozen, because the restore steps had rejected a spec file";

/**
 * Describes the end of the workload for people.
 *
 * @param oomKilled whether a process in its cgroup was OOM-killed; undefined if unknown
 */
export function describeEnd(end: ProcessEnd, oomKilled: boolean | undefined, ending: EndedByAgent): string {
  const { code, signal, coreDumped } = end;
  const how = signal === 0 ? `exited with status ${code}` : `was killed by ${nameOf(signal)}`;
  const core = coreDumped ? " (core dumped)" : "";
  return `the workload ${how}${core}${because(end, oomKilled, ending)}`;
}

function because({ code, signal }: ProcessEnd, oomKilled: boolean | undefined, ending: EndedByAgent): string {
  const isKilled = signal === Signal.KILL || code === SIGNAL_BASE + Signal.KILL;
  if (oomKilled === true) {
    return signal === Signal.KILL
      ? ": out of memory (killed by the kernel's OOM killer)"
      : ", after the kernel's OOM killer killed one of its processes";
  }
  if (ending === "kill_frozen") return `: ${KILLED_FROZEN}`;
  if (ending === "stop")
    return isKilled ? ": it was asked to stop and did not end within stop_grace_ms" : ", because it was asked to stop";
  if (!isKilled) return "";
  return oomKilled === undefined
    ? "; whether the workload ran out of memory is unknown, because the guest has no cgroup memory controller"
    : ": by a process in the guest, not by the OOM killer";
}

function nameOf(signal: number): string {
  const name = Object.entries(constants.signals).find(([, number]) => number === signal)?.[0];
  return name ?? `signal ${signal}`;
}
