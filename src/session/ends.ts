import {
  type ChildProcess,
  HANGUP_GRACE_MS,
  KILL_WAIT_MS,
  type ProcessEnd,
  type ProcessSet,
  TERM_GRACE_MS,
} from "../domain/index.ts";

const SIGHUP = 1;
const SIGKILL = 9;
const SIGTERM = 15;
const SIGCONT = 18;

/** How processes are asked to end, and how long they may take before SIGKILL. */
export interface Ending {
  readonly signal: number;
  readonly graceMs: number;
}

/** For a tree: a command at its timeout, and whatever runs when the agent leaves. */
export const TERMINATE: Ending = { signal: SIGTERM, graceMs: TERM_GRACE_MS };
/** For the session of a command whose client is gone, as a lost terminal line does it. */
export const HANG_UP: Ending = { signal: SIGHUP, graceMs: HANGUP_GRACE_MS };
/** At once, for what must not act any more. */
export const KILL: Ending = { signal: SIGKILL, graceMs: 0 };

/** What an end came to. */
export type EndOfProcesses =
  /** Nobody was alive any more before the grace was over. */
  | "in_time"
  /** SIGKILL was needed, and nobody is alive any more. */
  | "killed"
  /** Somebody is alive that SIGKILL does not end: it hangs in the kernel, or may not be signalled. */
  | "left";

/**
 * Ends processes together: the signal to each of them, then the grace until the last one has gone, not just the first; then
 * SIGKILL. The only way in which the agent ends anything. Bounded by the grace and KILL_WAIT_MS. Never rejects.
 */
export async function endProcesses(processes: ProcessSet, ending: Ending): Promise<EndOfProcesses> {
  if (ending.signal !== SIGKILL) {
    processes.signal(ending.signal);
    // A stopped process would not see the signal before it is continued.
    processes.signal(SIGCONT);
    if (await processes.emptyWithin(ending.graceMs)) return "in_time";
  }
  return (await processes.killWithin(KILL_WAIT_MS)) ? "killed" : "left";
}

/** How a child that could be ended by the agent has ended. */
export interface Ended {
  readonly end: ProcessEnd;
  /** It did not end by itself: the agent ended its tree. */
  readonly byAgent: boolean;
}

/**
 * Resolves when the child has ended. When the signal is aborted before that, with an Ending as its reason, ends the child's
 * tree and resolves when nobody of it is alive. What a child that ended by itself left in the background lives on.
 */
export async function followToEnd(child: ChildProcess, signal: AbortSignal): Promise<Ended> {
  const stuck = Promise.withResolvers<ProcessEnd>();
  let ending: Promise<EndOfProcesses> | undefined;
  const onAbort = (): void => {
    ending = endProcesses(child.tree, signal.reason as Ending);
    void ending.then((outcome) => {
      // The child itself may be what SIGKILL does not end: nobody waits for it any longer.
      if (outcome === "left") stuck.resolve({ kind: "signaled", signal: SIGKILL, coreDumped: false });
    });
  };
  signal.addEventListener("abort", onAbort);
  if (signal.aborted) onAbort();
  const end = await Promise.race([child.ended, stuck.promise]);
  signal.removeEventListener("abort", onAbort);
  await ending;
  return { end, byAgent: ending !== undefined };
}
