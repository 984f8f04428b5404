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

/** How processes are asked to end, and how long they may take before SIGKILL. */
export interface Ending {
  readonly signal: number;
  readonly graceMs: number;
}

/** For the tree of a command at its timeout, and for all that runs when the agent leaves. */
export const TERMINATE: Ending = { signal: Signal.TERM, graceMs: TERM_GRACE_MS };
/** For the session of a command whose client is gone, as the kernel does for a lost terminal. */
export const HANG_UP: Ending = { signal: Signal.HUP, graceMs: HANGUP_GRACE_MS };
/** For processes that must not run any more. */
export const KILL: Ending = { signal: Signal.KILL, graceMs: 0 };

/** How an ending went. */
export type EndOfProcesses =
  /** All processes ended within the grace. */
  | "in_time"
  /** SIGKILL was needed, and all have ended. */
  | "killed"
  /** A process survives SIGKILL: it hangs in the kernel, or the agent may not signal it. */
  | "left";

/**
 * Ends processes together: sends the signal to each, waits up to the grace until the last has ended, sends SIGKILL,
 * waits up to KILL_WAIT_MS. The agent ends processes in no other way. Never rejects.
 */
export async function endProcesses(processes: ProcessSet, ending: Ending): Promise<EndOfProcesses> {
  if (ending.signal !== Signal.KILL) {
    await processes.signal(ending.signal);
    if (await processes.emptyWithin(ending.graceMs)) return "in_time";
  }
  return (await processes.killWithin(KILL_WAIT_MS)) ? "killed" : "left";
}

/** How a child ended. */
export interface Ended {
  readonly end: ProcessEnd;
  /** The agent ended its tree; it did not end by itself. */
  readonly byAgent: boolean;
}

/**
 * Resolves when the child has ended. If the signal is aborted first (its reason is an Ending), ends the child's tree
 * and resolves when all of it has ended. Background processes of a child that ended by itself live on.
 */
export async function followToEnd(child: ChildProcess, signal: AbortSignal): Promise<Ended> {
  const stuck = Promise.withResolvers<ProcessEnd>();
  let ending: Promise<EndOfProcesses> | undefined;
  using _listener = whenAborted(signal, () => {
    ending = endProcesses(child.tree, signal.reason as Ending);
    void ending.then((outcome) => {
      // The child itself may survive SIGKILL: stop waiting for it.
      if (outcome === "left") stuck.resolve({ code: 128 + Signal.KILL, signal: Signal.KILL, coreDumped: false });
    });
  });
  const end = await Promise.race([child.ended, stuck.promise]);
  if (ending !== undefined) await ending;
  return { end, byAgent: ending !== undefined };
}
