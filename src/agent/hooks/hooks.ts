import {
  AgentError,
  type ByteSource,
  type ChildProcess,
  type Clock,
  type CommandSpec,
  type CommandUsage,
  DEFAULT_HOOK_TIMEOUT_MS,
  FREEZE_LIMIT_MS,
  HOOK_TAIL_BYTES,
  HOOK_TIMEOUT_LIMIT_MS,
  type HooksSpec,
  invalidField,
  type Log,
  Mutex,
  type Timers,
  whenAborted,
} from "../domain/index.ts";
import { followToEnd, type FreezeReport, type FreezeRequest, KILL, notFrozen, TERMINATE } from "../session/index.ts";
import { Tail } from "./tail.ts";

/** 128 + SIGKILL. */
const KILLED_EXIT = 137;

/** The two hooks of a workload. */
export type HookKind = "pre_snapshot" | "post_restore";

/** Which hook to run (message RunHookRequest). */
export interface HookRequest {
  readonly kind: HookKind;
  /** 0: 30 s; at most 10 minutes. */
  readonly timeoutMs: number;
  /** For how long the session is frozen after a PRE_SNAPSHOT hook; at most 10 minutes. 0: not at all. */
  readonly freezeMs: number;
}

/** How a hook ended (message RunHookResponse). */
export interface HookOutcome {
  /** False when no such hook is configured; the rest is then empty. */
  readonly ran: boolean;
  readonly timedOut: boolean;
  /** 128 + n when signal n ended it. */
  readonly exitCode: number;
  readonly stdoutTail: string;
  readonly stderrTail: string;
  readonly oomKilled: boolean;
  readonly usage?: CommandUsage | undefined;
  /** The result of the freeze; undefined: none was requested. */
  readonly freeze?: FreezeReport;
}

/** An outcome, and what only the log gets of it. */
interface HookEnd extends HookOutcome {
  /** Processes that outlived the hook's tree and hold its output: without a cgroup nothing else links them to it. */
  readonly leftRunning: readonly number[];
}

/** What the hooks capability needs. */
export interface HooksParts {
  readonly specs: HooksSpec;
  /** Starts a hook's command with its streams on pipes, as an exec'd command would be. */
  readonly start: (spec: CommandSpec, abort: AbortSignal) => Promise<ChildProcess>;
  /** Resolves when no restore duties are in progress. Rejects with the signal's reason. */
  readonly dutiesSettled: (signal: AbortSignal) => Promise<void>;
  /** Called before the answer to PRE_SNAPSHOT, once its hook, if there is one, has ended. */
  readonly beforeSnapshot: () => Promise<void>;
  /** Freezes the session while no restore duties run. */
  readonly freeze: (request: FreezeRequest) => Promise<FreezeReport>;
  readonly timers: Timers;
  readonly clock: Clock;
  readonly log: Log;
}

const NO_TAILS = { stdoutTail: "", stderrTail: "" };
const NOT_CONFIGURED: HookOutcome & { readonly isSwept?: boolean } = {
  ran: false,
  timedOut: false,
  exitCode: 0,
  oomKilled: false,
  ...NO_TAILS,
};

interface Running {
  readonly kind: HookKind;
  /** Ends the hook with its whole tree, also while it is being started. Its reason is an Ending; the first counts. */
  readonly stop: AbortController;
  /** Restore duties have ended it. */
  isSwept: boolean;
  /** Never rejects. */
  readonly ended: Promise<unknown>;
}

/** Runs the hooks that the user configured, one at a time. */
export class Hooks {
  readonly #parts: HooksParts;
  readonly #mutex = new Mutex();
  #specs: HooksSpec;
  #running: Running | undefined;
  #closed: AgentError | undefined;

  constructor(parts: HooksParts) {
    this.#parts = parts;
    this.#specs = parts.specs;
  }

  /** Puts other specs in force, for hooks that start from now on. */
  renew(specs: HooksSpec): void {
    this.#specs = specs;
  }

  /**
   * Runs a hook. A second one waits for the first; POST_RESTORE waits for restore duties. The timeout counts from the
   * hook's own start. Freezes the session after PRE_SNAPSHOT if the request asks for it, whether the hook failed,
   * succeeded or is not configured.
   *
   * @param signal aborted when the client is gone; the hook is then ended with its whole tree
   * @throws AgentError for a time over its limit, for a hook that could not be started, while the session is frozen, or
   *   the signal's reason
   */
  async run(request: HookRequest, signal: AbortSignal): Promise<HookOutcome> {
    checkRequest(request);
    const { beforeSnapshot } = this.#parts;
    const outcome = await this.#runIfThere(request, signal);
    if (request.kind === "post_restore") return outcome;
    if (request.freezeMs === 0) await beforeSnapshot();
    return outcome;
  }

  /** The spec in force: duties that a POST_RESTORE hook waits for may put another in. */
  #specOf({ kind }: HookRequest): CommandSpec | undefined {
    return kind === "post_restore" ? this.#specs.postRestore : this.#specs.preSnapshot;
  }

  async #runIfThere(request: HookRequest, signal: AbortSignal): Promise<HookOutcome> {
    const { dutiesSettled, freeze, beforeSnapshot } = this.#parts;
    if (this.#specOf(request) === undefined && request.freezeMs === 0) return NOT_CONFIGURED;
    return this.#mutex.run(async () => {
      if (request.kind === "post_restore") await dutiesSettled(signal);
      if (this.#closed !== undefined) throw this.#closed;
      const spec = this.#specOf(request);
      const { isSwept = false, ...outcome } =
        spec === undefined ? NOT_CONFIGURED : await this.#runNow(request, spec, signal);
      const { freezeMs } = request;
      if (freezeMs === 0) return outcome;
      // Freeze before the next hook gets its turn.
      const report = isSwept ? notFrozen("duties_ran") : await freeze({ freezeMs, signal, prepare: beforeSnapshot });
      return { ...outcome, freeze: report };
    }, signal);
  }

  /** Kills a PRE_SNAPSHOT hook without a grace: it is from before the restore. Resolves when its tree has ended. */
  async sweep(): Promise<void> {
    const running = this.#running;
    if (running?.kind !== "pre_snapshot") return;
    this.#parts.log.warn("hook_swept", { kind: running.kind });
    running.isSwept = true;
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

  async #runNow(
    { kind, timeoutMs }: HookRequest,
    spec: CommandSpec,
    signal: AbortSignal,
  ): Promise<HookOutcome & Pick<Running, "isSwept">> {
    const { clock, log } = this.#parts;
    const startedMs = clock.monotonicMs();
    const stop = new AbortController();
    signal.throwIfAborted();
    using _listener = whenAborted(signal, () => stop.abort(TERMINATE));
    const outcome = this.#outcomeOf(spec, timeoutMs === 0 ? DEFAULT_HOOK_TIMEOUT_MS : timeoutMs, stop);
    const running: Running = { kind, stop, isSwept: false, ended: outcome.catch(() => {}) };
    this.#running = running;
    try {
      const { leftRunning, ...result } = await outcome;
      const { exitCode, timedOut, oomKilled } = result;
      if (leftRunning.length > 0) log.warn("hook_left_running", { kind, pids: leftRunning.join(" ") });
      log.info("hook_ended", {
        kind,
        exit_code: exitCode,
        timed_out: timedOut,
        oom_killed: oomKilled,
        cancelled: signal.aborted,
        duration_ms: Math.round(clock.monotonicMs() - startedMs),
      });
      signal.throwIfAborted();
      return { ...result, isSwept: running.isSwept };
    } catch (error) {
      if (error instanceof AgentError && error.reason.startsWith("EXEC_")) {
        const { reason, metadata } = error;
        log.warn("hook_not_started", { kind, reason, step: metadata["step"], errno: metadata["errno"] });
      }
      throw error;
    } finally {
      this.#running = undefined;
    }
  }

  /** Resolves when the hook has ended; after the timeout or a stop, when its whole tree has. Throws AgentError. */
  async #outcomeOf(spec: CommandSpec, timeoutMs: number, stop: AbortController): Promise<HookEnd> {
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
      const { oomKilled = false, usage } = child.accounts();
      child.release();
      return {
        ran: true,
        timedOut: timedOut && byAgent,
        exitCode: end.code,
        oomKilled,
        usage,
        stdoutTail: stdout.text(),
        stderrTail: stderr.text(),
        leftRunning,
      };
    } catch (error) {
      if (!timedOut) throw error;
      // The timeout came while the hook was starting, for example from a file system that hangs.
      return { ran: true, timedOut, exitCode: KILLED_EXIT, oomKilled: false, ...NO_TAILS, leftRunning: [] };
    } finally {
      cancelTimeout();
    }
  }
}

function checkRequest({ kind, timeoutMs, freezeMs }: HookRequest): void {
  if (timeoutMs > HOOK_TIMEOUT_LIMIT_MS) {
    throw invalidField("timeout_ms", `is ${timeoutMs}: at most ${HOOK_TIMEOUT_LIMIT_MS} are allowed`);
  }
  if (freezeMs > 0 && kind !== "pre_snapshot") {
    throw invalidField("freeze_ms", `is ${freezeMs}: only PRE_SNAPSHOT freezes the session`);
  }
  if (freezeMs > FREEZE_LIMIT_MS) {
    throw invalidField("freeze_ms", `is ${freezeMs}: at most ${FREEZE_LIMIT_MS} are allowed`);
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
