import { type ChildProcess, HANGUP_GRACE_MS, TERM_GRACE_MS } from "../domain/index.ts";

const SIGHUP = 1;
const SIGKILL = 9;
const SIGTERM = 15;
const SIGCONT = 18;

/** Resolves when the process has ended or the time has passed, whichever is first. */
async function endedWithin(child: ChildProcess, limitMs: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const timeUp = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, limitMs);
  });
  await Promise.race([child.ended, timeUp]);
  clearTimeout(timer);
}

/**
 * Ends a command and everything it started: SIGTERM to the tree, two seconds for the command to leave, then SIGKILL for
 * what is left of the tree, wherever it hides. Resolves when nothing of it is alive.
 */
export async function terminateTree(child: ChildProcess): Promise<void> {
  child.signalTree(SIGTERM);
  // A stopped process would not see the signal before it is continued.
  child.signalTree(SIGCONT);
  await endedWithin(child, TERM_GRACE_MS);
  await child.killTree();
}

/**
 * Ends a command whose client is gone, as a lost terminal line does: SIGHUP to its process group, five seconds, then
 * SIGKILL to the group. Daemons that left the session on purpose live on.
 */
export async function hangUp(child: ChildProcess): Promise<void> {
  child.signalGroup(SIGHUP);
  child.signalGroup(SIGCONT);
  await endedWithin(child, HANGUP_GRACE_MS);
  child.signalGroup(SIGKILL);
}
