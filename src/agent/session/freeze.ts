import {
  AgentError,
  type Clock,
  FREEZE_WAIT_MS,
  type FreezeProblem,
  type Log,
  type PendingProcess,
  type SessionGroup,
  type SessionClock,
  type Timers,
} from "../domain/index.ts";

/**
 * Interval of the ticks that count down the time until a frozen session thaws. When a suspended guest resumes, the
 * monotonic clock may jump by the suspended time. So a tick counts as at most LONGEST_TICK_MS.
 */
const TICK_MS = 100;
const LONGEST_TICK_MS = 200;

/** The result of a freeze (RunHookRequest.freeze_ms). */
export interface FreezeReport {
  readonly frozen: boolean;
  readonly processes: number;
  /**
   * Processes of the frozen session that have not stopped yet, because they wait in the kernel. They stop when their
   * wait ends. Undefined if all processes have stopped.
   */
  readonly pending: readonly PendingProcess[] | undefined;
  /** Why nothing is frozen. Undefined if the session is frozen. */
  readonly problem: FreezeProblem | undefined;
}

/** What RunRestoreDuties reports about a freeze. */
export interface DutiesThaw {
  /**
   * Whether the session is still frozen: because of keep_frozen or an invalid spec file, or because the kernel refused
   * to thaw.
   */
  readonly frozen: boolean;
  /** Whether the session was frozen and then thawed without restore steps. */
  readonly thawedWithoutDuties: boolean;
}

/** Two reasons to leave a frozen session frozen after the restore steps. */
export interface DutiesEnd {
  /** Whether the caller has requested that the session stays frozen (RestoreDutiesRequest.keep_frozen). */
  readonly keep: boolean;
  /**
   * Whether a spec file is invalid. If so, the session would run with its previous variables, which may belong to
   * another guest.
   */
  readonly specRefused: boolean;
}

/** Why a session was killed while it was frozen. */
export type FrozenEnd = "time_over" | "signal" | "leaving";

/** A request to freeze the session for a snapshot (RunHookRequest.freeze_ms). */
export interface FreezeRequest {
  /** Longest time to stay frozen, not counting the time for which the VM was suspended. */
  readonly freezeMs: number;
  /** This signal is aborted when the caller disconnects. If that happens before the freeze, nothing is frozen. */
  readonly signal: AbortSignal;
  /** Called just before the freeze, when no command is starting. */
  readonly prepare: () => Promise<void>;
}

export interface SessionFreezeParts {
  /** The session's processes; undefined if the session has no cgroup and therefore cannot be frozen. */
  readonly group: SessionGroup | undefined;
  readonly sessionClock: SessionClock;
  readonly timers: Timers;
  readonly clock: Pick<Clock, "monotonicMs">;
  readonly log: Log;
}

/** Something that runs a command in the session at intervals (ready_cmd), and pauses while the session is frozen. */
export interface Pausable {
  /** Ends the command if it is running, and does not start it again. Resolves when the command has ended. */
  pause(): Promise<void>;
  /** Resumes: runs the command immediately, and then again at intervals. */
  runNow(): void;
}

type State =
  | { readonly kind: "live" }
  /** No command may start, and the freeze waits for commands that are starting. */
  | { readonly kind: "closing"; readonly freezeMs: number }
  | {
      readonly kind: "frozen";
      readonly sinceMs: number;
      leftMs: number;
      cancelTick: () => void;
      /**
       * Whether any RunRestoreDuties call during this freeze had keep_frozen. The host sets keep_frozen to write files
       * of the guest before the session runs. A later RunRestoreDuties call then thaws the session.
       */
      keptForFiles: boolean;
      /**
       * Whether the last RunRestoreDuties call found an invalid spec file. Never true while `keptForFiles` is false,
       * because an invalid file then does not keep the session frozen.
       */
      specRefused: boolean;
    };

const LIVE: State = { kind: "live" };

/** Returns the report for a freeze that failed because of `problem`, so that nothing is frozen. */
export function notFrozen(problem: FreezeProblem): FreezeReport {
  return { frozen: false, processes: 0, pending: undefined, problem };
}

/**
 * Freezes the session for a snapshot. Every start of a command must go through `admit`, because a command that starts
 * in a frozen session would hang.
 *
 *            freeze()             group.freeze()
 *     live ────────────► closing ────────────────► frozen ────► killed
 *      ▲                    │ cancelled               │ thawed
 *      └────────────────────┴─────────────────────────┘
 *
 * In the state "closing", any of these cancels the freeze: a problem, a disconnect of the caller, a termination signal,
 * or a shutdown of the agent. The state "frozen" ends in one of these ways:
 *
 * - The restore steps of a RunRestoreDuties call thaw the session (see `thawByDuties`).
 * - The time is over, a termination signal arrives, or the agent shuts down. If `specRefused` is false, the session is
 *   then thawed (logged as thawed_without_duties). If `specRefused` is true, the session is killed, and the agent ends
 *   (logged as freeze_expired if the time is over, otherwise as frozen_session_killed).
 * - A check right after the freeze finds a process that is not frozen. The session is thawed, and the freeze fails.
 *
 * If the kernel refuses to thaw or to kill the session, it stays frozen.
 */
export class SessionFreeze {
  readonly #parts: SessionFreezeParts;
  readonly #starts: Set<Promise<unknown>> = new Set();
  #pausable: Pausable | undefined;
  #state: State = LIVE;
  #thawedWithoutDuties = false;
  #isOver = false;
  #onKilled: () => void = () => {};

  constructor(parts: SessionFreezeParts) {
    this.#parts = parts;
  }

  /** Registers a part of the agent that pauses while the session is frozen. */
  pauseWhileFrozen(pausable: Pausable): void {
    this.#pausable = pausable;
  }

  /**
   * Registers a function that is called after the session was killed while it was frozen, because the agent must then
   * end.
   */
  whenKilled(onKilled: () => void): void {
    this.#onKilled = onKilled;
  }

  get frozen(): boolean {
    return this.#state.kind === "frozen";
  }

  /** Whether the session was thawed without restore steps, and no restore steps have run since. */
  get thawedWithoutDuties(): boolean {
    return this.#thawedWithoutDuties;
  }

  /**
   * Throws FAILED_PRECONDITION SESSION_FROZEN if the session is frozen or is about to be frozen, because no command may
   * start then.
   */
  check(): void {
    if (this.#state.kind === "live") return;
    const leftMs = Math.ceil(this.#state.kind === "frozen" ? this.#state.leftMs : this.#state.freezeMs);
    const message =
      this.#state.kind === "frozen" && this.#state.specRefused
        ? `the restore steps rejected a spec file, so the session is frozen and will be killed in ${leftMs} ms: replace the file, which the log event process_env_refused names, and run the restore steps again`
        : `the session is frozen for a snapshot: call RunRestoreDuties, which thaws it, or wait until it thaws in ${leftMs} ms`;
    throw new AgentError("FAILED_PRECONDITION", "SESSION_FROZEN", message, { leftMs: String(leftMs) });
  }

  /**
   * Calls `start`, which starts a command. While no command may start, throws FAILED_PRECONDITION SESSION_FROZEN
   * instead.
   */
  async admit<Started>(start: () => Promise<Started>): Promise<Started> {
    this.check();
    const started = start();
    this.#starts.add(started);
    try {
      return await started;
    } finally {
      this.#starts.delete(started);
    }
  }

  /**
   * Freezes the session. Resolves when all of its processes have stopped, or after two seconds.
   *
   * @throws AgentError FAILED_PRECONDITION if the session is already frozen; the signal's reason if the caller
   *   disconnects before the session is frozen
   */
  async freeze({ freezeMs, signal, prepare }: FreezeRequest): Promise<FreezeReport> {
    const { group, sessionClock, clock, log } = this.#parts;
    this.check();
    signal.throwIfAborted();
    if (group === undefined || this.#isOver) {
      await prepare();
      return this.#refused(this.#isOver ? "leaving" : "no_cgroups");
    }
    const closing: State = { kind: "closing", freezeMs };
    this.#state = closing;
    try {
      const problem = await this.#quiesce();
      signal.throwIfAborted();
      await prepare();
      signal.throwIfAborted();
      // While this call waited, a shutdown of the agent or a signal may have changed the state.
      if (this.#state !== closing) return this.#refused(this.#isOver ? "leaving" : "thawed_meanwhile");
      if (problem !== undefined) return this.#refused(problem);
      sessionClock.freeze();
      const refusal = group.freeze();
      if (refusal !== undefined) return this.#refused(refusal);
      this.#state = {
        kind: "frozen",
        sinceMs: clock.monotonicMs(),
        leftMs: freezeMs,
        cancelTick: () => {},
        keptForFiles: false,
        specRefused: false,
      };
      this.#tick(this.#state);
    } finally {
      if (this.#state === closing) this.#resumeAfterFailure();
    }
    const pending = await group.stopped(FREEZE_WAIT_MS);
    const late = this.frozen ? group.recheck() : undefined;
    if (late !== undefined) {
      this.#thaw("failed");
      if (!this.frozen) this.#pausable?.runNow();
      return this.#refused(late);
    }
    const processes = group.size();
    log.info("session_frozen", { processes, pending: pending?.length ?? 0, freeze_ms: freezeMs });
    // A short freeze_ms may already be over, or the agent may have begun to shut down.
    return this.frozen ? { frozen: true, processes, pending, problem: undefined } : notFrozen("thawed_meanwhile");
  }

  /**
   * Called by the restore steps. Thaws a frozen session, except in two cases:
   *
   * - `keep` is set: the client requested to keep the session frozen.
   * - `specRefused` is set, and `keep` was set in an earlier call during this freeze. The guest is then a fork whose spec
   *   files the client is still writing. The fork must not run with the variables of its original guest.
   *
   * Does not resume ready_cmd; the caller does.
   */
  thawByDuties({ keep, specRefused }: DutiesEnd): DutiesThaw {
    const thawedWithoutDuties = this.#thawedWithoutDuties;
    this.#thawedWithoutDuties = false;
    const state = this.#state;
    if (state.kind === "frozen") {
      state.keptForFiles ||= keep;
      state.specRefused = specRefused && state.keptForFiles;
      if (!keep && !state.specRefused) this.#thaw("duties");
    }
    return { frozen: this.frozen, thawedWithoutDuties };
  }

  /** Ends a freeze because the agent shuts down. From now on nothing freezes the session. */
  shutDown(): void {
    this.#isOver = true;
    if (this.#state.kind === "frozen") this.#endWithoutDuties("leaving");
    // If a freeze is in progress, freeze() finds that the state has changed, and fails.
    else this.#state = LIVE;
  }

  /**
   * Called before the agent forwards a termination signal. Thaws or kills a frozen session, or cancels a freeze in
   * progress.
   */
  thawForSignal(): void {
    if (this.#state.kind === "closing") this.#resumeAfterFailure();
    if (this.#state.kind !== "frozen") return;
    this.#endWithoutDuties("signal");
  }

  /**
   * Waits until ready_cmd has ended and no command is being started, but at most FREEZE_WAIT_MS. Returns a problem only
   * if a command is still starting after that time.
   */
  async #quiesce(): Promise<FreezeProblem | undefined> {
    const { promise: timeUp, resolve } = Promise.withResolvers<"late">();
    const cancel = this.#parts.timers.after(FREEZE_WAIT_MS, () => resolve("late"));
    await Promise.race([this.#pausable?.pause(), timeUp]);
    const started = Promise.allSettled(this.#starts);
    const late = (await Promise.race([started, timeUp])) === "late";
    cancel();
    return late ? "starts_in_flight" : undefined;
  }

  #refused(problem: FreezeProblem): FreezeReport {
    this.#parts.log.warn("session_freeze_failed", { problem });
    return notFrozen(problem);
  }

  /** Permits starts of commands and resumes ready_cmd after a failed freeze. */
  #resumeAfterFailure(): void {
    this.#parts.sessionClock.thaw();
    this.#state = LIVE;
    this.#pausable?.runNow();
  }

  #tick(frozen: Extract<State, { kind: "frozen" }>): void {
    const { clock, timers } = this.#parts;
    const beganMs = clock.monotonicMs();
    const delayMs = frozen.leftMs > 0 ? Math.min(TICK_MS, frozen.leftMs) : TICK_MS;
    frozen.cancelTick = timers.after(delayMs, () => {
      frozen.leftMs -= Math.min(clock.monotonicMs() - beganMs, LONGEST_TICK_MS);
      if (frozen.leftMs > 0) {
        this.#tick(frozen);
        return;
      }
      frozen.leftMs = 0;
      this.#endWithoutDuties("time_over");
      if (this.#state === frozen) this.#tick(frozen);
    });
  }

  /**
   * Thaws the session. If a spec file is invalid, kills the session instead, because its processes must not run at all,
   * not even to clean up.
   */
  #endWithoutDuties(why: FrozenEnd): void {
    if (this.#state.kind === "frozen" && this.#state.specRefused) {
      this.#kill(why);
      return;
    }
    this.#thaw(why);
    if (!this.frozen && !this.#isOver) this.#pausable?.runNow();
  }

  #kill(why: FrozenEnd): void {
    const { group, sessionClock, log, clock } = this.#parts;
    if (group === undefined || this.#state.kind !== "frozen") return;
    const frozenMs = Math.round(clock.monotonicMs() - this.#state.sinceMs);
    const processes = group.size();
    if (!group.kill()) {
      log.error("frozen_session_kill_failed", { why });
      return;
    }
    const fields = { frozen_ms: frozenMs, processes };
    if (why === "time_over") log.error("freeze_expired", fields);
    else log.error("frozen_session_killed", { why, ...fields });
    this.#isOver = true;
    this.#state.cancelTick();
    this.#state = LIVE;
    // Each thawed process has a pending SIGKILL, which takes effect before its next instruction.
    group.thaw();
    sessionClock.thaw();
    this.#onKilled();
  }

  #thaw(why: "duties" | "failed" | "leaving" | "signal" | "time_over"): void {
    const { group, sessionClock, log, clock } = this.#parts;
    if (this.#state.kind !== "frozen") return;
    const frozenMs = Math.round(clock.monotonicMs() - this.#state.sinceMs);
    if (group?.thaw() !== true) {
      log.error("session_thaw_failed", { why });
      return;
    }
    this.#state.cancelTick();
    this.#state = LIVE;
    sessionClock.thaw();
    // This thaw undoes a freeze that failed. That freeze was not logged as session_frozen, so the thaw is not logged
    // either.
    if (why === "failed") return;
    this.#thawedWithoutDuties = why !== "duties";
    if (this.#thawedWithoutDuties) log.warn("thawed_without_duties", { why, frozen_ms: frozenMs });
    else log.info("session_thawed", { frozen_ms: frozenMs });
  }
}
