import {
  type ChildProcess,
  HANGUP_GRACE_MS,
  KILL_WAIT_MS,
  type ProcessEnd,
  type ProcessSet,
  Signal,
  TERM_GRACE_MS,
  whenAborted,
} from "../domain/index.ts";

/** The first signal that processes receive to end them, and how long they may take before SIGKILL. */
export interface Ending {
  readonly signal: number;
  readonly graceMs: number;
}

/**
 * Signal and grace period for the process tree of a command at its timeout, and for all processes when the agent shuts
 * down.
 */
export const TERMINATE: Ending = { signal: Signal.TERM, graceMs: TERM_GRACE_MS };
/**
 * Signal and grace period for all processes in a command's session when its client disconnects. The signal is SIGHUP,
 * which the kernel also sends when a terminal disconnects.
 */
export const HANG_UP: Ending = { signal: Signal.HUP, graceMs: HANGUP_GRACE_MS };
export const KILL: Ending = { signal: Signal.KILL, graceMs: 0 };

/** Whether `endProcesses` has ended all processes, and how. */
export type EndOfProcesses =
  /** All processes ended within the grace period. */
  | "in_time"
  /** All processes ended, some of them only by SIGKILL after the grace period. */
  | "killed"
  /** A process survives SIGKILL: it hangs in the kernel, or the agent lacks permission to signal it. */
  | "left";

/**
 * Ends processes: sends the signal to each, waits at most the grace period until the last has ended, sends SIGKILL, and
 * waits at most KILL_WAIT_MS. The agent always ends processes with this function. Never rejects.
 */
export async function endProcesses(processes: ProcessSet, ending: Ending): Promise<EndOfProcesses> {
  if (ending.signal !== Signal.KILL) {
    await processes.signal(ending.signal);
    if (await processes.emptyWithin(ending.graceMs)) return "in_time";
  }
  return (await processes.killWithin(KILL_WAIT_MS)) ? "killed" : "left";
}

/** How a child ended, and whether the agent ended it. */
export interface Ended {
  readonly end: ProcessEnd;
  /** Whether the agent ended the child's process tree; false if the child ended by itself. */
  readonly byAgent: boolean;
}

/**
 * Resolves when the child has ended; its background processes continue. If `signal` is aborted first, ends the whole
 * process tree as the signal's reason (an Ending) says, and resolves when all of it has ended.
 */
export async function followToEnd(child: ChildProcess, signal: AbortSignal): Promise<Ended> {
  const stuck = Promise.withResolvers<ProcessEnd>();
  let ending: Promise<EndOfProcesses> | undefined;
  using _listener = whenAborted(signal, () => {
    ending = endProcesses(child.tree, signal.reason as Ending);
    void ending.then((outcome) => {
      // Some process survived SIGKILL. It may be the child itself, so waiting for the child's end could last forever.
      if (outcome === "left") stuck.resolve({ code: 128 + Signal.KILL, signal: Signal.KILL, coreDumped: false });
    });
  });
  const end = await Promise.race([child.ended, stuck.promise]);
  if (ending !== undefined) await ending;
  return { end, byAgent: ending !== undefined };
}
