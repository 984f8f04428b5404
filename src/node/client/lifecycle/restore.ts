import { randomBytes } from "node:crypto";
import { checkOptions, limitOf, uint32Milliseconds, wholeNumber } from "../arguments.ts";
import type { CallOptions } from "../grpc/channel.ts";
import { abortedError, failure, GuestError, mayConnect } from "../errors/errors.ts";
import { printable } from "../../../shared/printable.ts";
import type { DutiesRequest, DutiesResult, Health, HookResult } from "./messages.ts";
import type { Names } from "../options.ts";
import { growingPauses, retried } from "../grpc/retry.ts";
import { TimeLimit } from "../time-limit.ts";
import { checkClock } from "./clock-check.ts";

/**
 * Default number of random bytes: twice the 32 bytes that the kernel's generator needs. The agent reports fewer than 32
 * as too few.
 */
const DEFAULT_ENTROPY_BYTES = 64;
/** Limit for a restored guest to answer its first call. */
const DEFAULT_REACH_TIMEOUT_MS = 10_000;
/**
 * Limit on the error of the guest's clock after the restore steps, in milliseconds. If the measured error minus its
 * uncertainty is larger, the call that set the clock was delayed, so the restore steps are repeated.
 */
const REPEAT_OVER_MS = 50;
/** A clock error above this makes the guest's schedules, leases and log times wrong. */
const WARN_OVER_MS = 100;
/** The word in `degraded` for a refused spec file (docs/agent/operations.md, degraded). */
const SPEC_REFUSED = "process_env:refused";
/**
 * Minimum time limit of a `dial` after the restore steps, in milliseconds. It is long, because a caller that restores
 * many guests may dial other guests first: this guest already has its own random numbers.
 */
const LEAST_DIAL_MS = 60_000;
/** Limit on the pause between attempts. */
const LONGEST_PAUSE_MS = 1_000;

/** Options of `restoreDuties`. */
export interface DutiesOptions {
  /** How many bytes from the host's random generator to send to the guest. Default: 64. */
  readonly entropyBytes?: number | undefined;
  /** Send the host's time, to which the guest then sets its clock. Default: true. */
  readonly hostTime?: boolean | undefined;
  /**
   * Leave a frozen session frozen. Use this if you will run the restore steps again, for example after you have written
   * files in the guest. Default: false.
   */
  readonly keepFrozen?: boolean | undefined;
  /**
   * For how long to try to reach the agent, in milliseconds. The agent may not be running again yet. Infinity means no
   * limit. Default: 10 s.
   */
  readonly reachTimeoutMs?: number | undefined;
  /**
   * Time limit of each call that runs the restore steps, in milliseconds. The time begins when the agent has been
   * reached. Default: Infinity, which means no limit.
   */
  readonly dutiesTimeoutMs?: number | undefined;
  /** Time limit of the whole operation, in milliseconds from now. Default: Infinity, which means no limit. */
  readonly requestTimeoutMs?: number | undefined;
  /** When this signal is aborted, the calls in progress are cancelled and the retries end. */
  readonly signal?: AbortSignal | undefined;
}

const DUTIES: Names<DutiesOptions> = {
  entropyBytes: true,
  hostTime: true,
  keepFrozen: true,
  reachTimeoutMs: true,
  dutiesTimeoutMs: true,
  requestTimeoutMs: true,
  signal: true,
};

/** The part of a GuestClient that a restore needs. */
export interface RestoredGuest {
  readonly agentVersion?: string | undefined;
  health(options?: CallOptions): Promise<Health>;
  readonly snapshots: {
    hook(
      kind: "post-restore",
      options?: CallOptions & { readonly timeoutMs?: number | undefined },
    ): Promise<HookResult>;
    duties(options: DutiesRequest & CallOptions): Promise<DutiesResult>;
  };
  close(): void;
}

/**
 * Creates a client with the credentials that are valid at this moment.
 *
 * @param areDutiesDone whether the restore steps have been done. The steps may have replaced the credentials that the
 *   agent accepts
 */
export type Dial = (areDutiesDone: boolean) => RestoredGuest | Promise<RestoredGuest>;

/**
 * Makes the agent of a restored guest run its restore steps, with fresh entropy and the current time. Retries while the
 * agent cannot be reached. Also retries if the session is still frozen afterwards, unless `keepFrozen` is set or the
 * agent has refused a spec file. Repeated restore steps do no harm. Rejects with GuestError.
 */
export async function restoreDuties(dial: Dial, options: DutiesOptions = {}): Promise<DutiesResult> {
  checkOptions("the options of restoreDuties()", options, DUTIES);
  return repeatedDuties(dial, options, endOf(options));
}

/** Time limit of a restore, and the signal with which the caller can abort the restore. */
interface End {
  readonly limit: TimeLimit;
  readonly signal: AbortSignal | undefined;
}

function endOf({ requestTimeoutMs, signal }: DutiesOptions): End {
  return { limit: new TimeLimit(requestTimeoutMs), signal };
}

async function repeatedDuties(
  dial: Dial,
  {
    entropyBytes = DEFAULT_ENTROPY_BYTES,
    hostTime = true,
    keepFrozen = false,
    reachTimeoutMs = DEFAULT_REACH_TIMEOUT_MS,
    dutiesTimeoutMs,
  }: DutiesOptions,
  end: End,
): Promise<DutiesResult> {
  const { limit, signal } = end;
  const untilMs = reachUntil(reachTimeoutMs, limit);
  const callMs = limitOf(dutiesTimeoutMs, "dutiesTimeoutMs");
  const sizeBytes = wholeNumber(entropyBytes, "entropyBytes");
  // Older agents report `thawedWithoutDuties` only in Health, and only until the restore steps have run. If the answer
  // to the restore steps is lost, Health no longer reports it in the next attempt. So collect it from all attempts.
  let thawedWithoutDuties = false;
  const attempt = async (): Promise<DutiesResult> => {
    const client = await dialled(dial, false, end, untilMs);
    try {
      // Connect before the call that carries the time, because a TLS handshake within that call would delay the time.
      const health = await reach(client, untilMs, signal, (error) => mayConnect(error) && !isCertificateRefused(error));
      thawedWithoutDuties ||= health.thawedWithoutDuties;
      const duties = await client.snapshots.duties({
        entropy: randomBytes(sizeBytes),
        keepFrozen,
        ...(hostTime && { hostTime: new Date() }),
        signal,
        requestTimeoutMs: limit.left(callMs),
      });
      thawedWithoutDuties ||= duties.thawedWithoutDuties;
      return { ...duties, thawedWithoutDuties };
    } finally {
      client.close();
    }
  };
  return retried(attempt(), attempt, {
    pausesMs: growingPauses(LONGEST_PAUSE_MS),
    untilMs,
    signal,
    isTransient: mayConnect,
    isEnough: (duties) => !duties.frozen || keepFrozen || hasRefusedSpec(duties),
  });
}

/** Returns the time at which attempts to reach the agent end, as a value of performance.now(). */
function reachUntil(reachTimeoutMs: number, limit: TimeLimit): number {
  const untilMs = performance.now() + (limitOf(reachTimeoutMs, "reachTimeoutMs") ?? Number.POSITIVE_INFINITY);
  return Math.min(untilMs, limit.endMs);
}

/**
 * Calls `dial`. Rejects with GuestError at `untilMs` (by performance.now()), or at the time limit of the restore if
 * that is earlier. If `dial` returns a client later, the client is closed.
 */
async function dialled(
  dial: Dial,
  areDutiesDone: boolean,
  { limit, signal }: End,
  untilMs: number,
): Promise<RestoredGuest> {
  if (signal?.aborted === true) throw abortedError(signal);
  const dialling = Promise.resolve(dial(areDutiesDone));
  const isWhole = limit.endMs <= untilMs;
  const message = `${isWhole ? "requestTimeoutMs" : "reachTimeoutMs"} expired before the function that connects to the guest returned a client`;
  const late = (): GuestError =>
    isWhole
      ? new GuestError({ status: "DEADLINE_EXCEEDED", message })
      : failure("UNAVAILABLE", "DIAL_TIMED_OUT", message);
  try {
    return await new TimeLimit(Math.max(0, untilMs - performance.now())).within(dialling, late, signal);
  } catch (error) {
    dialling.then(
      (client) => client.close(),
      () => undefined,
    );
    throw error;
  }
}

/**
 * Whether the agent refused a spec file in the restore steps. If the steps were run with `keepFrozen`, the session then
 * stays frozen until the steps are run again and the agent accepts the file. If that does not happen within the time
 * limit of the freeze, the session is killed.
 */
export function hasRefusedSpec({ degraded }: Pick<DutiesResult, "degraded">): boolean {
  return degraded.split(";").includes(SPEC_REFUSED);
}

/**
 * Calls Health, with retries while the agent may not be running again yet. Does not use `waitForReady`, which would
 * hide why a connection fails.
 */
function reach(
  client: RestoredGuest,
  untilMs: number,
  signal: AbortSignal | undefined,
  isTransient: (error: unknown) => boolean = mayConnect,
): Promise<Health> {
  const ask = (): Promise<Health> =>
    client.health({ requestTimeoutMs: Math.max(1, Math.floor(untilMs - performance.now())), signal });
  return retried(ask(), ask, { pausesMs: growingPauses(LONGEST_PAUSE_MS), untilMs, signal, isTransient });
}

/** Whether the agent refused the certificate. It then needs a new client, because the agent's CA may have changed. */
function isCertificateRefused(error: unknown): boolean {
  return error instanceof GuestError && error.code === "CLIENT_CERTIFICATE_REFUSED";
}

/** What `restoreSequence` and `completeRestore` report about a restore. */
export interface RestoreOutcome {
  /** Result of the first run of the restore steps. */
  readonly duties: DutiesResult;
  /**
   * Whether the session had thawed by itself before these restore steps. If so, it ran with the random numbers and the
   * clock of the snapshot, and its clones may have drawn the same random numbers.
   */
  readonly thawedWithoutDuties: boolean;
  /**
   * Result of the second restore steps, which were run because the clock was still off by more than 50 ms. Undefined if
   * they were not needed.
   */
  readonly repeated: RepeatedDuties | undefined;
  /** The host's time after the answer to the last restore steps, in milliseconds since 1970. */
  readonly dutiesDoneMs: number;
  readonly hook: HookResult;
  readonly health: Health;
  readonly agentVersion: string | undefined;
  /**
   * Guest time minus host time at the end of the restore, in milliseconds. It comes from the quickest of three
   * readings, and its uncertainty is half of that reading's duration. NaN if the agent sends no time.
   */
  readonly clockErrorMs: number;
  /** Problems of the restore; empty if there were none. */
  readonly warnings: readonly RestoreWarning[];
}

/** A problem that did not make the restore fail. */
export interface RestoreWarning {
  readonly code: "THAWED_WITHOUT_DUTIES" | "DUTIES_DEGRADED" | "CLOCK_OFF" | "HOOK_TIMED_OUT" | "HOOK_FAILED";
  readonly message: string;
}

interface RepeatedDuties {
  /** Guest time minus host time after the first restore steps, in milliseconds. */
  readonly clockErrorMs: number;
  readonly duties: DutiesResult;
}

/** Options of `restoreSequence`. */
export interface RestoreOptions extends DutiesOptions {
  /** Time allowed for the POST_RESTORE hook, in milliseconds. Default: the agent's own default. */
  readonly hookTimeoutMs?: number | undefined;
}

const RESTORE: Names<RestoreOptions> = { ...DUTIES, hookTimeoutMs: true };

/** Checks the options before the first step, because the restore steps cannot be undone. Throws GuestError. */
function checkRestore(name: string, options: RestoreOptions): void {
  checkOptions(`the options of ${name}()`, options, RESTORE);
  if (options.hookTimeoutMs !== undefined) uint32Milliseconds(options.hookTimeoutMs, "hookTimeoutMs");
}

/**
 * Does everything that a node agent must do after a restore. First runs the restore steps, and repeats them once if the
 * clock is still off by more than 50 ms. Then reconnects, because the restore steps close all other connections.
 * Finally runs the POST_RESTORE hook once and calls Health. Rejects with GuestError; its code is SPEC_REFUSED if the
 * session stays frozen because the agent refused a spec file.
 */
export async function restoreSequence(dial: Dial, options: RestoreOptions = {}): Promise<RestoreOutcome> {
  checkRestore("restoreSequence", options);
  const end = endOf(options);
  const duties = await repeatedDuties(dial, options, end);
  return finished(dial, { duties, atMs: Date.now() }, options, end);
}

/** Restore steps that have been run, for `finishRestore`. */
export interface DoneDuties {
  readonly duties: DutiesResult;
  /** Host time at which the agent's answer to the restore steps had arrived, as Unix time in milliseconds. */
  readonly atMs: number;
}

/**
 * Does what remains of `restoreSequence` after the restore steps. A node that restores many guests can first run the
 * restore steps of all guests, so that no two clones draw the same random numbers, and then call this function for each
 * guest. Rejects like `restoreSequence`.
 */
export async function finishRestore(
  dial: Dial,
  done: DoneDuties,
  options: RestoreOptions = {},
): Promise<RestoreOutcome> {
  checkRestore("finishRestore", options);
  return finished(dial, done, options, endOf(options));
}

async function finished(
  dial: Dial,
  { duties, atMs }: DoneDuties,
  options: RestoreOptions,
  end: End,
): Promise<RestoreOutcome> {
  const { hookTimeoutMs: timeoutMs = 0, reachTimeoutMs = DEFAULT_REACH_TIMEOUT_MS } = options;
  const { limit, signal } = end;
  const { thawedWithoutDuties } = duties;
  if (duties.frozen && hasRefusedSpec(duties)) {
    const message =
      "the agent rejected a changed spec file, so the session stays frozen; otherwise its processes would run with the environment variables from before the restore";
    throw failure("FAILED_PRECONDITION", "SPEC_REFUSED", message);
  }
  let dutiesDoneMs = atMs;
  let repeated: RepeatedDuties | undefined;
  const dialUntil = (): number => reachUntil(Math.max(reachTimeoutMs, LEAST_DIAL_MS), limit);
  let client = await dialled(dial, true, end, dialUntil());
  try {
    await reach(client, reachUntil(reachTimeoutMs, limit), signal);
    const { clockErrorMs, certainErrorMs } = await checkClock(client, end);
    if (duties.clockStepped && certainErrorMs > REPEAT_OVER_MS) {
      repeated = { clockErrorMs, duties: await repeatedDuties(() => dial(true), options, end) };
      dutiesDoneMs = Date.now();
      client.close();
      client = await dialled(dial, true, end, dialUntil());
      await reach(client, reachUntil(reachTimeoutMs, limit), signal);
    }
    const hook = await client.snapshots.hook("post-restore", { timeoutMs, signal, requestTimeoutMs: limit.left() });
    const { certainErrorMs: lastErrorMs, ...last } = await checkClock(client, end);
    const outcome = { duties, thawedWithoutDuties, repeated, dutiesDoneMs, hook, ...last };
    const warnings = [...warningsOf(outcome, lastErrorMs, options)];
    return { ...outcome, agentVersion: client.agentVersion, warnings };
  } catch (error) {
    // Clear `retryable`: the restore steps have been run, so the error must not say that nothing was executed.
    throw error instanceof GuestError ? error.ofBegunCall() : error;
  } finally {
    client.close();
  }
}

function* warningsOf(
  outcome: Pick<RestoreOutcome, "duties" | "thawedWithoutDuties" | "repeated" | "hook" | "clockErrorMs">,
  certainErrorMs: number,
  { hostTime = true }: DutiesOptions,
): Generator<RestoreWarning> {
  const { thawedWithoutDuties, hook, clockErrorMs } = outcome;
  if (thawedWithoutDuties) {
    const message =
      "the session ran before these restore steps, with the old time, and its clones may have drawn the same random numbers; request a longer freeze, or run the restore steps sooner";
    yield { code: "THAWED_WITHOUT_DUTIES", message };
  }
  const { degraded } = outcome.repeated?.duties ?? outcome.duties;
  if (degraded !== "")
    yield { code: "DUTIES_DEGRADED", message: `not all restore steps could be done: ${printable(degraded)}` };
  if (hostTime && certainErrorMs > WARN_OVER_MS) {
    const off = `${Math.abs(clockErrorMs).toFixed(1)} ms ${clockErrorMs < 0 ? "behind" : "ahead of"}`;
    const message = `the guest's clock is ${off} this host's after the restore steps; check "degraded", the load of host and guest, and other programs that set the guest's clock`;
    yield { code: "CLOCK_OFF", message };
  }
  if (hook.timedOut) yield { code: "HOOK_TIMED_OUT", message: "the POST_RESTORE hook was killed at its timeout" };
  else if (hook.exitCode !== 0)
    yield { code: "HOOK_FAILED", message: `the POST_RESTORE hook ended with status ${hook.exitCode}` };
}
