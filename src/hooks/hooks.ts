import {
  AgentError,
  type Clock,
  DEFAULT_HOOK_TIMEOUT_MS,
  HOOK_TIMEOUT_LIMIT_MS,
  type HookSpec,
  type HooksSpec,
  invalidField,
  type Log,
  Mutex,
  type Timers,
} from "../domain/index.ts";
import { KILL, TERMINATE } from "../session/index.ts";
import { type HookOutcome, HookRun, type StartHook } from "./hook-run.ts";

/** The two hooks of a workload. */
export type HookKind = "pre_snapshot" | "post_restore";

/** What the hooks capability needs. */
export interface HooksParts {
  readonly specs: HooksSpec;
  readonly start: StartHook;
  /** Resolves when no restore duties are in progress. Rejects with the signal's reason. */
  readonly dutiesSettled: (signal: AbortSignal) => Promise<void>;
  /** Told when PRE_SNAPSHOT was called for and its hook, if there is one, has ended; the answer goes out afterwards. */
  readonly beforeSnapshot: () => void;
  readonly timers: Timers;
  readonly clock: Clock;
  readonly log: Log;
}

const NOT_CONFIGURED: HookOutcome = { ran: false, timedOut: false, exitCode: 0, stdoutTail: "", stderrTail: "" };

interface Running {
  readonly kind: HookKind;
  readonly run: HookRun;
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
    running.run.end(KILL);
    await running.ended;
  }

  /** Refuses new hooks from now on. */
  close(reason: AgentError): void {
    this.#closed ??= reason;
  }

  /** Ends a running hook. Resolves when its whole tree has ended. */
  async terminate(): Promise<void> {
    this.#running?.run.end(TERMINATE);
    await this.#running?.ended;
  }

  async #runNow(kind: HookKind, spec: HookSpec, timeoutMs: number, signal: AbortSignal): Promise<HookOutcome> {
    const { start, timers, clock, log } = this.#parts;
    const startedMs = clock.monotonicMs();
    const run = new HookRun({ spec, timeoutMs, start, timers });
    const onAbort = (): void => run.end(TERMINATE);
    signal.throwIfAborted();
    signal.addEventListener("abort", onAbort);
    const outcome = run.run();
    this.#running = { kind, run, ended: outcome.catch(() => {}) };
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
}
