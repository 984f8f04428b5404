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
 * The time until a frozen session thaws is counted in ticks, none of which counts more than twice its length. The
 * monotonic clock may jump when the guest is resumed, by all the time for which it was suspended.
 */
const TICK_MS = 100;
const LONGEST_TICK_MS = 200;

/** The result of a freeze (RunHookRequest.freeze_ms). */
export interface FreezeReport {
  readonly frozen: boolean;
  /** Processes that are frozen. */
  readonly processes: number;
  /** Those of them that wait in the kernel and have not stopped; undefined: all have. */
  readonly pending: readonly PendingProcess[] | undefined;
  /** Why nothing is frozen; undefined: it is. */
  readonly problem: FreezeProblem | undefined;
}

/** What the restore duties found of a freeze. */
export interface DutiesThaw {
  /** The session is still frozen: as asked, because a spec was refused, or because the kernel refused to thaw it. */
  readonly frozen: boolean;
  /** It had been frozen, and thawed before any duties. */
  readonly thawedWithoutDuties: boolean;
}

/** How duties end: whether they leave a frozen session frozen. */
export interface DutiesEnd {
  /** The caller asked for it (RestoreDutiesRequest.keep_frozen). */
  readonly keep: boolean;
  /** A spec file cannot be used: the session would run with variables that may be another guest's. */
  readonly specRefused: boolean;
}

/** Why a session was killed while it was frozen. */
export type FrozenEnd = "time_over" | "signal" | "leaving";

/** A request to freeze the session. */
export interface FreezeRequest {
  /** How long to stay frozen at most, without the time for which the VM was suspended. */
  readonly freezeMs: number;
  /** Aborted when the caller is gone: nothing is frozen then. */
  readonly signal: AbortSignal;
  /** Called when nothing of the session is being started any more, just before it is frozen. */
  readonly prepare: () => Promise<void>;
}

/** What a SessionFreeze needs. */
export interface SessionFreezeParts {
  /** Undefined: there is no cgroup that holds the session. */
  readonly group: SessionGroup | undefined;
  readonly sessionClock: SessionClock;
  readonly timers: Timers;
  readonly clock: Pick<Clock, "monotonicMs">;
  readonly log: Log;
}

/** Something that runs at intervals in the session and pauses while it is frozen: ready_cmd. */
export interface Pausable {
  /** Ends what runs. Resolves when it has ended. */
  pause(): Promise<void>;
  /** Goes on. */
  runNow(): void;
}

type State =
  | { readonly kind: "live" }
  /** Nothing new starts; commands that are starting are waited for. */
  | { readonly kind: "closing"; readonly freezeMs: number }
  | {
      readonly kind: "frozen";
      readonly sinceMs: number;
      leftMs: number;
      cancelTick: () => void;
      /** Duties of this freeze asked to keep it, so that files of the guest could be written before the next ones. */
      keptForFiles: boolean;
      /** The last duties of a freeze that was kept for files have refused a spec. */
      specRefused: boolean;
    };

const LIVE: State = { kind: "live" };

/** Nothing is frozen, for this reason. */
export function notFrozen(problem: FreezeProblem): FreezeReport {
  return { frozen: false, processes: 0, pending: undefined, problem };
}

/**
 * Freezes the session for a snapshot, and thaws it: at the restore duties, when the time is over, or when the agent
 * leaves. The gate that every start of a command goes through: none begins while the session is frozen, as it would
 * hang.
 *
 *            freeze()             group.freeze()
 *     live ────────────► closing ────────────────► frozen ◄─┐ duties with keep_frozen; duties that refuse a spec
 *      ▲                    │                       │ │  └──┘ after keep_frozen; the kernel refuses to thaw or kill
 *      ├────────────────────┘                       │ │
 *      │  problem, caller gone, signal, leaving     │ │ a spec was refused, and then: time over, signal, leaving
 *      │                                            │ └──────────────────────────► killed (freeze_expired,
 *      └────────────────────────────────────────────┘                              frozen_session_killed): the agent ends
 *         duties; no spec refused: time over (thawed_without_duties), signal, leaving
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

  /** Registers what pauses while the session is frozen. */
  pauseWhileFrozen(pausable: Pausable): void {
    this.#pausable = pausable;
  }

  /** Registers what is called once the session was killed while it was frozen: the agent has to end. */
  whenKilled(onKilled: () => void): void {
    this.#onKilled = onKilled;
  }

  get frozen(): boolean {
    return this.#state.kind === "frozen";
  }

  /** The session thawed before duties came, and none have come since. */
  get thawedWithoutDuties(): boolean {
    return this.#thawedWithoutDuties;
  }

  /** Throws FAILED_PRECONDITION SESSION_FROZEN while nothing may be started. */
  check(): void {
    if (this.#state.kind === "live") return;
    const leftMs = Math.ceil(this.#state.kind === "frozen" ? this.#state.leftMs : this.#state.freezeMs);
    const message =
      this.#state.kind === "frozen" && this.#state.specRefused
        ? `the session is frozen because the restore duties rejected a spec file, and will be killed in ${leftMs} ms: ` +
          `replace the file that the agent's log names (process_env_refused) and run the duties again`
        : `the session is frozen for a snapshot, for ${leftMs} ms more unless RunRestoreDuties thaws it: ` +
          `run the duties, or wait`;
    throw new AgentError("FAILED_PRECONDITION", "SESSION_FROZEN", message, { leftMs: String(leftMs) });
  }

  /** Starts a command, unless the session is frozen: then throws as `check` does. */
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
   * Freezes the session. Resolves once all of it has stopped, or two seconds later.
   *
   * @throws AgentError FAILED_PRECONDITION when it is frozen already; the signal's reason when the caller was gone
   *   before
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
      // In the meantime the agent may have begun to leave, or a signal may have asked the session to end.
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
      if (this.#state === closing) this.#goOn();
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
    // A short freeze_ms may be over, or the agent may have begun to leave.
    return this.frozen ? { frozen: true, processes, pending, problem: undefined } : notFrozen("thawed_meanwhile");
  }

  /**
   * The part of the restore duties: thaws the session if it is frozen, unless it is to be kept frozen for the duties
   * that follow. A refused spec keeps it frozen too, once duties have kept it: the caller writes a fork's files, and
   * the session must not run with those of its origin. The caller resumes ready_cmd.
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

  /** Ends a freeze because the agent leaves; from now on nothing freezes the session. */
  leave(): void {
    this.#isOver = true;
    if (this.#state.kind === "frozen") this.#endWithoutDuties("leaving");
    // A freeze that is under way sees that.
    else this.#state = LIVE;
  }

  /** Ends a freeze because a signal asks the session to end, which the agent forwards. Gives up a freeze under way. */
  endAskedFor(): void {
    if (this.#state.kind === "closing") this.#goOn();
    if (this.#state.kind !== "frozen") return;
    this.#endWithoutDuties("signal");
  }

  /**
   * Waits up to FREEZE_WAIT_MS until no command is starting and ready_cmd has ended. Commands still starting are a
   * problem.
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

  /** Ends a failed freeze. */
  #goOn(): void {
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

  /** Thaws the session, or kills it: with a refused spec none of its instructions may run, not even to clean up. */
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
    const fields = { why, frozen_ms: frozenMs, processes };
    if (why === "time_over") log.error("freeze_expired", fields);
    else log.error("frozen_session_killed", fields);
    this.#isOver = true;
    this.#state.cancelTick();
    this.#state = LIVE;
    // All that is left of it has SIGKILL pending, which acts before any of its instructions.
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
    // No answer has said that a failed freeze is one.
    if (why === "failed") return;
    this.#thawedWithoutDuties = why !== "duties";
    if (this.#thawedWithoutDuties) log.warn("thawed_without_duties", { why, frozen_ms: frozenMs });
    else log.info("session_thawed", { frozen_ms: frozenMs });
  }
}
