import {
  type ChildProcess,
  type CommandUsage,
  type ProcessEnd,
  type SessionClock,
  TIMER_LIMIT_MS,
} from "../domain/index.ts";
import { type Ending, endProcesses, type EndOfProcesses, TERMINATE } from "../session/index.ts";

/** How a command ended (message ExecExit). */
export interface ExecResult extends ProcessEnd {
  readonly timedOut: boolean;
  readonly oomKilled: boolean;
  readonly outputComplete: boolean;
  readonly durationMs: number;
  readonly usage: CommandUsage | undefined;
}

export interface CommandParts {
  readonly child: ChildProcess;
  /** 0 means no timeout. */
  readonly timeoutMs: number;
  /** The clock for timeout and duration. It stops while the session is frozen. */
  readonly sessionClock: SessionClock;
  /** Called once when the agent starts to end the command. */
  readonly onEnding: () => void;
  /**
   * Called when the process has ended. The rest of its output is delivered only afterwards, so `result.outputComplete`
   * is still false.
   */
  readonly onProcessEnd?: (result: ExecResult) => void;
}

/** A command from its start until it is reaped. Used for both plain and kept commands. */
export class RunningCommand {
  readonly #parts: CommandParts;
  #timedOut = false;
  /**
   * Settles when all terminations that `endBy` and `endTree` have started are complete. Undefined before the first of
   * them.
   */
  #ending: Promise<unknown> | undefined;
  #ended = false;

  constructor(parts: CommandParts) {
    this.#parts = parts;
  }

  /** The command's process and cgroup. The pid is undefined after the process has ended, because pids are reused. */
  get leader(): { readonly pid: number | undefined; readonly cgroup: string | undefined } {
    const { pid, cgroup } = this.#parts.child;
    return { pid: this.#ended ? undefined : pid, cgroup };
  }

  /**
   * Waits for the end of the command. Resolves when all output is delivered and the command is reaped. If the agent
   * ends the command, all its processes have ended by then, except those that hang in the kernel. Call it after the
   * command's streams were started.
   */
  async follow(): Promise<ExecResult> {
    const { child, sessionClock, timeoutMs, onProcessEnd } = this.#parts;
    const startedMs = sessionClock.nowMs();
    const cancelTimeout = this.#startTimeout(timeoutMs);
    const end = await child.ended;
    this.#ended = true;
    cancelTimeout?.();
    const durationMs = Math.round(sessionClock.nowMs() - startedMs);
    await this.#endings();
    onProcessEnd?.(this.#result(end, false, durationMs));
    const outputComplete = await drained(child);
    // The kernel's figures must be read before `release`, which removes the command's cgroup.
    const result = this.#result(end, outputComplete, durationMs);
    child.release();
    return result;
  }

  /** Ends the command's tree or session, unless it has ended or is being ended. */
  endBy(whom: "tree" | "session", ending: Ending): void {
    // Background processes of a command that ended by itself continue to run.
    if (this.#ended || this.#ending !== undefined) return;
    this.#parts.onEnding();
    this.#ending = endProcesses(this.#parts.child[whom], ending);
  }

  /**
   * Ends the command's process tree. May be called again with a stronger signal, which is then sent at once, even if
   * the grace period of the first call has not passed.
   */
  async endTree(ending: Ending): Promise<EndOfProcesses> {
    if (this.#ending === undefined) this.#parts.onEnding();
    const outcome = endProcesses(this.#parts.child.tree, ending);
    this.#ending = Promise.all([this.#ending, outcome]);
    return outcome;
  }

  /** Resolves when every termination of the command has completed, even one that begins while this method waits. */
  async #endings(): Promise<void> {
    let awaited: Promise<unknown> | undefined;
    while (this.#ending !== awaited) {
      awaited = this.#ending;
      await awaited;
    }
  }

  #startTimeout(timeoutMs: number): (() => void) | undefined {
    // Node cannot set a timer for longer than TIMER_LIMIT_MS, so a command with a longer timeout runs without one.
    if (timeoutMs === 0 || timeoutMs > TIMER_LIMIT_MS) return undefined;
    return this.#parts.sessionClock.after(timeoutMs, () => {
      this.#timedOut = true;
      this.endBy("tree", TERMINATE);
    });
  }

  #result(end: ProcessEnd, outputComplete: boolean, durationMs: number): ExecResult {
    const { oomKilled = false, usage } = this.#parts.child.accounts();
    return { ...end, timedOut: this.#timedOut, oomKilled, outputComplete, durationMs, usage };
  }
}

/**
 * Reads the rest of an ended command's output. Resolves with true at EOF, or with false if another process still has a
 * stream open.
 */
export async function drained({ stdout, stderr }: Pick<ChildProcess, "stdout" | "stderr">): Promise<boolean> {
  const ends = await Promise.all([stdout?.drain(), stderr?.drain()]);
  return !ends.includes(false);
}
