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
  /** The session is still frozen: as asked, or because the kernel refused to thaw it. */
  readonly frozen: boolean;
  /** It had been frozen, and thawed before any duties. */
  readonly thawedWithoutDuties: boolean;
}

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
  | { readonly kind: "frozen"; readonly sinceMs: number; leftMs: number; cancelTick: () => void };

const LIVE: State = { kind: "live" };

/** Nothing is frozen, for this reason. */
export function notFrozen(problem: FreezeProblem): FreezeReport {
  return { frozen: false, processes: 0, pending: undefined, problem };
}

/**
 * Freezes the session for a snapshot, and thaws it: at the restore duties, when the time is over, or when the agent
 * leaves. The gate that every start of a command goes through: none begins while the session is frozen, as it would
 * hang.
 */
export class SessionFreeze {
  readonly #parts: SessionFreezeParts;
  readonly #starts: Set<Promise<unknown>> = new Set();
  #pausable: Pausable | undefined;
  #state: State = LIVE;
  #thawedWithoutDuties = false;
  #isOver = false;

  constructor(parts: SessionFreezeParts) {
    this.#parts = parts;
  }

  /** Registers what pauses while the session is frozen. */
  pauseWhileFrozen(pausable: Pausable): void {
    this.#pausable = pausable;
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
    const leftMs = this.#state.kind === "frozen" ? this.#state.leftMs : this.#state.freezeMs;
    const message =
      `the session is frozen for a snapshot, for ${Math.ceil(leftMs)} ms more unless RunRestoreDuties thaws it: ` +
      `run the duties, or wait`;
    throw new AgentError("FAILED_PRECONDITION", "SESSION_FROZEN", message, { leftMs: String(Math.ceil(leftMs)) });
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
      this.#state = { kind: "frozen", sinceMs: clock.monotonicMs(), leftMs: freezeMs, cancelTick: () => {} };
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
   * that follow. The caller resumes ready_cmd.
   */
  thawByDuties(keep = false): DutiesThaw {
    const thawedWithoutDuties = this.#thawedWithoutDuties;
    this.#thawedWithoutDuties = false;
    if (this.#state.kind === "frozen" && !keep) this.#thaw("duties");
    return { frozen: this.frozen, thawedWithoutDuties };
  }

  /** Thaws the session because the agent leaves; from now on nothing freezes it. */
  leave(): void {
    this.#isOver = true;
    if (this.#state.kind === "frozen") this.#thaw("leaving");
    // A freeze that is under way sees that.
    else this.#state = LIVE;
  }

  /** Thaws the session because a signal asks it to end, which the agent forwards. Gives up a freeze under way. */
  endAskedFor(): void {
    if (this.#state.kind === "closing") this.#goOn();
    if (this.#state.kind !== "frozen") return;
    this.#thaw("signal");
    if (!this.frozen) this.#pausable?.runNow();
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
    this.#parts.log.warn("session_not_frozen", { problem });
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
      this.#thaw("time_over");
      if (this.#state === frozen) this.#tick(frozen);
      else this.#pausable?.runNow();
    });
  }

  #thaw(why: "duties" | "failed" | "leaving" | "signal" | "time_over"): void {
    const { group, sessionClock, log, clock } = this.#parts;
    if (this.#state.kind !== "frozen") return;
    const frozenMs = Math.round(clock.monotonicMs() - this.#state.sinceMs);
    if (group?.thaw() !== true) {
      log.error("session_not_thawed", { why });
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
