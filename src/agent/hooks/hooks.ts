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

/** Exit code of a hook that was killed: 128 + SIGKILL. */
const KILLED_EXIT = 137;

export type HookKind = "pre_snapshot" | "post_restore";

/** Which hook to run (message RunHookRequest). */
export interface HookRequest {
  readonly kind: HookKind;
  /** Timeout of the hook, at most 10 minutes; 0 means 30 s. */
  readonly timeoutMs: number;
  /** How long the session is frozen after a PRE_SNAPSHOT hook, at most 10 minutes; 0 means that it is not frozen. */
  readonly freezeMs: number;
}

/** How a hook ended (message RunHookResponse). */
export interface HookOutcome {
  /** Whether the hook ran. False if it is not configured; the other fields are then empty. */
  readonly ran: boolean;
  readonly timedOut: boolean;
  /** Exit code of the hook; 128 + n if signal n ended it. */
  readonly exitCode: number;
  readonly stdoutTail: string;
  readonly stderrTail: string;
  readonly oomKilled: boolean;
  readonly usage?: CommandUsage | undefined;
  /** Result of the freeze; undefined if no freeze was requested. */
  readonly freeze?: FreezeReport;
}

/** The outcome of a hook, with a detail that only the log contains. */
interface HookEnd extends HookOutcome {
  /**
   * Pids of processes that still have the hook's output open after the agent has ended the hook's tree. If the hook had
   * no cgroup, the agent has no other way to find processes that the hook has left.
   */
  readonly leftRunning: readonly number[];
}

export interface HooksParts {
  readonly specs: HooksSpec;
  readonly start: (spec: CommandSpec, abort: AbortSignal) => Promise<ChildProcess>;
  /** Resolves when no restore steps are running. If the signal is aborted, rejects with its reason. */
  readonly dutiesSettled: (signal: AbortSignal) => Promise<void>;
  /** Called when the PRE_SNAPSHOT hook (if any) has ended, before the call is answered. */
  readonly beforeSnapshot: () => Promise<void>;
  /** Freezes the session. Waits while restore steps run. */
  readonly freeze: (request: FreezeRequest) => Promise<FreezeReport>;
  readonly timers: Timers;
  readonly clock: Clock;
  readonly log: Log;
}

const NO_TAILS = { stdoutTail: "", stderrTail: "" };
const NOT_CONFIGURED: HookOutcome & { readonly isKilledStale?: boolean } = {
  ran: false,
  timedOut: false,
  exitCode: 0,
  oomKilled: false,
  ...NO_TAILS,
};

interface Running {
  readonly kind: HookKind;
  /** `abort(ending)` ends the hook's process tree, even while the hook is starting. Only the first abort() counts. */
  readonly stop: AbortController;
  /** Whether the restore steps have killed the hook (killStaleHook). */
  isKilledStale: boolean;
  /** Settles when the hook has ended. Never rejects. */
  readonly ended: Promise<unknown>;
}

/** Runs the configured hooks, one at a time. */
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

  /** Replaces the specs for hooks that start later. */
  renew(specs: HooksSpec): void {
    this.#specs = specs;
  }

  /**
   * Runs a hook, and then freezes the session if the request says so. Hooks run one at a time, and POST_RESTORE also
   * waits for running restore steps. The timeout counts from the start of the hook. The freeze happens even if the hook
   * exits with an error, times out or is not configured, but not if restore steps killed it (killStaleHook).
   *
   * @param signal aborted when the client disconnects; the hook's whole tree is then ended
   * @throws AgentError if a timeout exceeds its limit, the hook cannot be started, or the session is frozen; the reason
   *   of `signal` if that is aborted
   */
  async run(request: HookRequest, signal: AbortSignal): Promise<HookOutcome> {
    checkRequest(request);
    const { beforeSnapshot } = this.#parts;
    const outcome = await this.#runIfThere(request, signal);
    if (request.kind === "post_restore") return outcome;
    if (request.freezeMs === 0) await beforeSnapshot();
    return outcome;
  }

  /**
   * Returns the current spec. Call it again just before the hook starts, because restore steps may replace the spec
   * while POST_RESTORE waits.
   */
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
      const { isKilledStale = false, ...outcome } =
        spec === undefined ? NOT_CONFIGURED : await this.#runNow(request, spec, signal);
      const { freezeMs } = request;
      if (freezeMs === 0) return outcome;
      // The mutex is still held here, so that the next hook cannot start before the freeze.
      const report = isKilledStale
        ? notFrozen("duties_ran")
        : await freeze({ freezeMs, signal, prepare: beforeSnapshot });
      return { ...outcome, freeze: report };
    }, signal);
  }

  /**
   * Kills a PRE_SNAPSHOT hook without a grace period, because it started before the snapshot was taken. Resolves when
   * its tree has ended.
   */
  async killStaleHook(): Promise<void> {
    const running = this.#running;
    if (running?.kind !== "pre_snapshot") return;
    this.#parts.log.warn("hook_killed_stale", { kind: running.kind });
    running.isKilledStale = true;
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
  ): Promise<HookOutcome & Pick<Running, "isKilledStale">> {
    const { clock, log } = this.#parts;
    const startedMs = clock.monotonicMs();
    const stop = new AbortController();
    signal.throwIfAborted();
    using _listener = whenAborted(signal, () => stop.abort(TERMINATE));
    const outcome = this.#outcomeOf(spec, timeoutMs === 0 ? DEFAULT_HOOK_TIMEOUT_MS : timeoutMs, stop);
    const running: Running = { kind, stop, isKilledStale: false, ended: outcome.catch(() => {}) };
    this.#running = running;
    try {
      const { leftRunning, ...result } = await outcome;
      const { exitCode, timedOut, oomKilled } = result;
      if (leftRunning.length > 0) log.warn("hook_processes_left", { kind, pids: leftRunning.join(" ") });
      log.info("hook_ended", {
        kind,
        exit_code: exitCode,
        timed_out: timedOut,
        oom_killed: oomKilled,
        cancelled: signal.aborted,
        duration_ms: Math.round(clock.monotonicMs() - startedMs),
      });
      signal.throwIfAborted();
      return { ...result, isKilledStale: running.isKilledStale };
    } catch (error) {
      if (error instanceof AgentError && error.reason.startsWith("EXEC_")) {
        const { reason, metadata } = error;
        log.warn("hook_start_failed", { kind, reason, step: metadata["step"], errno: metadata["errno"] });
      }
      throw error;
    } finally {
      this.#running = undefined;
    }
  }

  /** Resolves when the hook has ended; after a timeout or stop, when its whole tree has ended. Throws AgentError. */
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
      // The timeout expired while the hook was starting, for example on a file system that hangs.
      return { ran: true, timedOut, exitCode: KILLED_EXIT, oomKilled: false, ...NO_TAILS, leftRunning: [] };
    } finally {
      cancelTimeout();
    }
  }
}

function checkRequest({ kind, timeoutMs, freezeMs }: HookRequest): void {
  if (timeoutMs > HOOK_TIMEOUT_LIMIT_MS) {
    throw invalidField("timeout_ms", `is ${timeoutMs}, but the maximum is ${HOOK_TIMEOUT_LIMIT_MS}`);
  }
  if (freezeMs > 0 && kind !== "pre_snapshot") {
    throw invalidField("freeze_ms", `must be 0, because only PRE_SNAPSHOT freezes the session`);
  }
  if (freezeMs > FREEZE_LIMIT_MS) {
    throw invalidField("freeze_ms", `is ${freezeMs}, but the maximum is ${FREEZE_LIMIT_MS}`);
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
