import {
  AgentError,
  type ByteSource,
  type ChildProcess,
  type Clock,
  DEFAULT_HOOK_TIMEOUT_MS,
  HOOK_TAIL_BYTES,
  HOOK_TIMEOUT_LIMIT_MS,
  type HookSpec,
  type HooksSpec,
  invalidField,
  type Log,
  Mutex,
  type Timers,
} from "../domain/index.ts";
import { followToEnd, KILL, TERMINATE } from "../session/index.ts";
import { Tail } from "./tail.ts";

/** 128 + SIGKILL. */
const KILLED_EXIT = 137;

/** The two hooks of a workload. */
export type HookKind = "pre_snapshot" | "post_restore";

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
interface HookEnd extends HookOutcome {
  /**
   * Processes that survived the end of the hook's tree and hold its output, so they are certainly the hook's. Without a
   * cgroup nothing else links such daemons to it.
   */
  readonly leftRunning: readonly number[];
}

/** What the hooks capability needs. */
export interface HooksParts {
  readonly specs: HooksSpec;
  /** Starts a hook's command with its streams on pipes, as an exec'd command would be. */
  readonly start: (spec: HookSpec, abort: AbortSignal) => Promise<ChildProcess>;
  /** Resolves when no restore duties are in progress. Rejects with the signal's reason. */
  readonly dutiesSettled: (signal: AbortSignal) => Promise<void>;
  /** Told when PRE_SNAPSHOT was called for and its hook, if there is one, has ended; the answer goes out afterwards. */
  readonly beforeSnapshot: () => void;
  readonly timers: Timers;
  readonly clock: Clock;
  readonly log: Log;
}

const NO_TAILS = { stdoutTail: "", stderrTail: "" };
const NOT_CONFIGURED: HookOutcome = { ran: false, timedOut: false, exitCode: 0, ...NO_TAILS };

interface Running {
  readonly kind: HookKind;
  /** Ends the hook with its whole tree, also while it is being started. Its reason is an Ending; the first one counts. */
  readonly stop: AbortController;
  /** Never rejects. */
  readonly ended: Promise<unknown>;
}

/** Runs the hooks that the user configured, one at a time. */
export class Hooks {
  readonly #parts: HooksParts;
  readonly #mutex = new Mutex();
  #running: Running | undefined;
  #closed: AgentError | undefined;

  constructor(parts: HooksParts) {
    this.#parts = parts;
  }

  /**
   * Runs a hook. A second one waits for the first; POST_RESTORE waits for restore duties. The timeout counts from the
   * hook's own start.
   *
   * @param timeoutMs 0: 30 s; at most 10 minutes
   * @param signal aborted when the client is gone; the hook is then ended with its whole tree
   * @throws AgentError for a timeout over the limit, for a hook that could not be started, or the signal's reason
   */
  async run(kind: HookKind, timeoutMs: number, signal: AbortSignal): Promise<HookOutcome> {
    if (timeoutMs > HOOK_TIMEOUT_LIMIT_MS) {
      throw invalidField("timeout_ms", `is ${timeoutMs}: at most ${HOOK_TIMEOUT_LIMIT_MS} are allowed`);
    }
    if (kind === "post_restore") return this.#runIfThere(kind, this.#parts.specs.postRestore, timeoutMs, signal);
    const outcome = await this.#runIfThere(kind, this.#parts.specs.preSnapshot, timeoutMs, signal);
    this.#parts.beforeSnapshot();
    return outcome;
  }

  async #runIfThere(
    kind: HookKind,
    spec: HookSpec | undefined,
    timeoutMs: number,
    signal: AbortSignal,
  ): Promise<HookOutcome> {
    const { dutiesSettled } = this.#parts;
    if (spec === undefined) return NOT_CONFIGURED;
    return this.#mutex.run(async () => {
      if (kind === "post_restore") await dutiesSettled(signal);
      if (this.#closed !== undefined) throw this.#closed;
      return this.#runNow(kind, spec, timeoutMs === 0 ? DEFAULT_HOOK_TIMEOUT_MS : timeoutMs, signal);
    }, signal);
  }

  /**
   * Kills a running PRE_SNAPSHOT hook without a grace: it belongs to the time before the restore. Resolves when its whole
   * tree has ended.
   */
  async sweep(): Promise<void> {
    const running = this.#running;
    if (running?.kind !== "pre_snapshot") return;
    this.#parts.log.warn("hook_swept", { kind: running.kind });
    running.stop.abort(KILL);
    await running.ended;
  }

  /** Refuses new hooks from now on. */
  close(reason: AgentError): void {
    this.#closed ??= reason;
  }

  /** Ends a running hook. Resolves when its whole tree has ended. */
  async terminate(): Promise<void> {
    this.#running?.stop.abort(TERMINATE);
    await this.#running?.ended;
  }

  async #runNow(kind: HookKind, spec: HookSpec, timeoutMs: number, signal: AbortSignal): Promise<HookOutcome> {
    const { clock, log } = this.#parts;
    const startedMs = clock.monotonicMs();
    const stop = new AbortController();
    const onAbort = (): void => stop.abort(TERMINATE);
    signal.throwIfAborted();
    signal.addEventListener("abort", onAbort);
    const outcome = this.#outcomeOf(spec, timeoutMs, stop);
    this.#running = { kind, stop, ended: outcome.catch(() => {}) };
    try {
      const { leftRunning, ...result } = await outcome;
      const { exitCode, timedOut } = result;
      if (leftRunning.length > 0) log.warn("hook_left_running", { kind, pids: leftRunning.join(" ") });
      const durationMs = Math.round(clock.monotonicMs() - startedMs);
      log.info("hook_ended", { kind, exitCode, timedOut, cancelled: signal.aborted, durationMs });
      signal.throwIfAborted();
      return result;
    } catch (error) {
      if (error instanceof AgentError && error.reason.startsWith("EXEC_")) {
        const { reason, metadata } = error;
        log.warn("hook_not_started", { kind, reason, step: metadata["step"], errno: metadata["errno"] });
      }
      throw error;
    } finally {
      signal.removeEventListener("abort", onAbort);
      this.#running = undefined;
    }
  }

  /** Resolves when the hook has ended; after the timeout or a stop, when its whole tree has. Throws AgentError. */
  async #outcomeOf(spec: HookSpec, timeoutMs: number, stop: AbortController): Promise<HookEnd> {
    const { start, timers } = this.#parts;
    let timedOut = false;
    const cancelTimeout = timers.after(timeoutMs, () => {
      timedOut = true;
      stop.abort(TERMINATE);
    });
    try {
      const child = await start(spec, stop.signal);
      const stdout = tailOf(child.stdout);
      const stderr = tailOf(child.stderr);
      const { end, byAgent } = await followToEnd(child, stop.signal);
      await Promise.all([child.stdout?.drain(), child.stderr?.drain()]);
      const leftRunning = byAgent ? child.outputHolders() : [];
      child.release();
      return {
        ran: true,
        timedOut: timedOut && byAgent,
        exitCode: end.code,
        stdoutTail: stdout.text(),
        stderrTail: stderr.text(),
        leftRunning,
      };
    } catch (error) {
      if (!timedOut) throw error;
      // The timeout came while it was being started, for example from a file system that hangs.
      return { ran: true, timedOut, exitCode: KILLED_EXIT, ...NO_TAILS, leftRunning: [] };
    } finally {
      cancelTimeout();
    }
  }
}

function tailOf(stream: ByteSource | undefined): Tail {
  const tail = new Tail(HOOK_TAIL_BYTES);
  stream?.start({
    chunk: (bytes, release) => {
      tail.push(bytes);
      release();
    },
    end: () => {},
  });
  return tail;
}
