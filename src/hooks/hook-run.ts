import { type ChildProcess, HOOK_TAIL_BYTES, type HookSpec, type Timers } from "../domain/index.ts";
import { type Ending, followToEnd, TERMINATE } from "../session/index.ts";
import { Tail } from "./tail.ts";

/** 128 + SIGKILL. */
const KILLED_EXIT = 137;

/** How a hook ended (message RunHookResponse). */
export interface HookOutcome {
  /** False when no such hook is configured; the rest is then empty. */
  readonly ran: boolean;
  readonly timedOut: boolean;
  /** 128 + n when signal n ended it. */
  readonly exitCode: number;
  readonly stdoutTail: string;
  readonly stderrTail: string;
}

/** An outcome, and a part of it for the log alone. */
export interface HookEnd extends HookOutcome {
  /**
   * Processes that survived the end of the hook's tree and hold its output, so they are certainly the hook's. Without a
   * cgroup nothing else links such daemons to it.
   */
  readonly leftRunning: readonly number[];
}

/** Starts a hook's command with its streams on pipes, as an exec'd command would be. */
export type StartHook = (spec: HookSpec, abort: AbortSignal) => Promise<ChildProcess>;

/** What one run needs. */
export interface HookRunParts {
  readonly spec: HookSpec;
  readonly timeoutMs: number;
  readonly start: StartHook;
  readonly timers: Timers;
}

/** One run of a hook, from its start to its end. */
export class HookRun {
  readonly #parts: HookRunParts;
  /** Ends the hook, also while it is being started. */
  readonly #stop = new AbortController();
  #timedOut = false;

  constructor(parts: HookRunParts) {
    this.#parts = parts;
  }

  /**
   * Runs the hook. Resolves when it has ended; after the timeout or `end`, when its whole tree has.
   *
   * @throws AgentError when it could not be started
   */
  async run(): Promise<HookEnd> {
    const { spec, start, timers, timeoutMs } = this.#parts;
    const cancelTimeout = timers.after(timeoutMs, () => {
      this.#timedOut = true;
      this.end(TERMINATE);
    });
    try {
      return await this.#follow(await start(spec, this.#stop.signal));
    } catch (error) {
      if (!this.#timedOut) throw error;
      // The timeout came while it was being started, for example from a file system that hangs.
      return { ran: true, timedOut: true, exitCode: KILLED_EXIT, stdoutTail: "", stderrTail: "", leftRunning: [] };
    } finally {
      cancelTimeout();
    }
  }

  /** Ends the hook with its whole tree. Only the first call counts. */
  end(ending: Ending): void {
    this.#stop.abort(ending);
  }

  async #follow(child: ChildProcess): Promise<HookEnd> {
    const tails = { stdout: new Tail(HOOK_TAIL_BYTES), stderr: new Tail(HOOK_TAIL_BYTES) };
    for (const stream of ["stdout", "stderr"] as const) {
      child[stream]?.start({
        chunk: (bytes, release) => {
          tails[stream].push(bytes);
          release();
        },
        end: () => {},
      });
    }
    const { end, byAgent } = await followToEnd(child, this.#stop.signal);
    await Promise.all([child.stdout?.drain(), child.stderr?.drain()]);
    const leftRunning = byAgent ? child.outputHolders() : [];
    child.release();
    return {
      ran: true,
      timedOut: this.#timedOut && byAgent,
      exitCode: end.code,
      stdoutTail: tails.stdout.text(),
      stderrTail: tails.stderr.text(),
      leftRunning,
    };
  }
}
