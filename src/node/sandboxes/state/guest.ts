import {
  type Dial,
  type DoneDuties,
  finishRestore,
  type GuestClient,
  GuestError,
  hasRefusedSpec,
  type HookResult,
  restoreSequence,
} from "../../client/index.ts";
import { currentSignal, publishNode, SandboxError, timeoutSignal } from "../substrate/index.ts";
import type { HookOutcome, SuspendReport } from "./journal.ts";
import { polled } from "./polled.ts";
import type { Warning } from "./warnings.ts";

/** Deadline of one attempt to reach an agent that may not have started yet. */
const ATTEMPT_MS = 2_000;
/** Pause between two attempts to reach an agent. */
const PAUSE_MS = 100;
/** Time allowed for the network in each call. It is added to the time that the call's work may take. */
export const CALL_MS = 10_000;
/** The limits of a call to an agent: its deadline, and the end of the operation that it belongs to. */
export function callLimits(
  requestTimeoutMs: number,
  signal?: AbortSignal,
): { readonly requestTimeoutMs: number; readonly signal: AbortSignal | undefined } {
  return { requestTimeoutMs, signal: currentSignal(signal) };
}

/** The agent's default timeout of a hook. */
const HOOK_TIMEOUT_MS = 30_000;
/** The daemon cancels a call after this time (hypeman 8853445, cmd/api/main.go:523). */
const SUBSTRATE_CALL_MS = 60_000;
/** The agent thaws a frozen session after this time at the latest. */
const FREEZE_LIMIT_MS = 600_000;
/**
 * How much longer a call may take if it freezes the session. The agent waits up to two seconds for processes that are
 * just starting, and up to two more until all processes have stopped.
 */
const FREEZE_WAIT_MS = 4_000;

/**
 * Matches the tokens in `degraded` which say that a random number generator was not reseeded. Does not match the tokens
 * about the clock or about the credited entropy.
 */
const NOT_RESEEDED = /^(?:entropy_open|entropy_short|crng_reseed(?!:unverified)|openssl_drbg)/;

/** Time limits for an agent. */
export interface Patience {
  /** How long a booted or restored agent may take to answer, in milliseconds. */
  readonly reachTimeoutMs: number;
  /** Timeout of each hook, in milliseconds; 0 for the agent's default. */
  readonly hookTimeoutMs: number;
}

/**
 * Retries an attempt while it fails with GuestError, and rejects at once if it fails with another error. Resolves with
 * the value of the first attempt that succeeds. Rejects with SandboxError (AGENT_UNREACHABLE) once the time is up.
 *
 * @param what start of the error message, such as "the agent has not answered"
 * @param attempt receives the time that an answer may take, in milliseconds
 * @param signal when it is aborted, the next failure is final
 */
export async function reached<Value>(
  reachTimeoutMs: number,
  what: string,
  attempt: (deadlineMs: number) => Promise<Value>,
  signal?: AbortSignal,
): Promise<Value> {
  const untilMs = performance.now() + reachTimeoutMs;
  let failure: GuestError | undefined;
  const outcome = await polled(
    () => {
      if (failure !== undefined) publishNode({ event: "retrying", reason: failure.message });
      return attempt(Math.max(1, Math.min(ATTEMPT_MS, untilMs - performance.now()))).then(
        (value) => ({ value }),
        (error: unknown) => {
          failure = error instanceof GuestError ? error : undefined;
          return { error };
        },
      );
    },
    (seen) => "value" in seen || !(seen.error instanceof GuestError),
    { pauseMs: PAUSE_MS, limitMs: reachTimeoutMs, signal },
  );
  if ("value" in outcome) return outcome.value;
  const { error } = outcome;
  if (!(error instanceof GuestError)) throw error;
  throw new SandboxError("AGENT_UNREACHABLE", `${what} within ${reachTimeoutMs} ms: ${error.message}`, error);
}

/**
 * Whether a session is frozen from before its suspension until its restore steps are done. "on": it is frozen if
 * possible, and the result is recorded. "required": the suspension fails if the session cannot be frozen. "off": the
 * session runs until it is suspended, and runs again as soon as it is resumed, before its restore steps.
 */
export type Freeze = "on" | "required" | "off";

/**
 * Runs the PRE_SNAPSHOT hook and freezes the session. A failure of the hook is only recorded. Rejects with GuestError;
 * in that case the session may or may not be frozen.
 */
export async function quiesce(client: GuestClient, freeze: Freeze, patience: Patience): Promise<SuspendReport> {
  const { hookTimeoutMs } = patience;
  const requestTimeoutMs = (hookTimeoutMs || HOOK_TIMEOUT_MS) + FREEZE_WAIT_MS + CALL_MS;
  const freezeMs = freeze === "off" ? 0 : freezeTimeMs(patience);
  const limits = callLimits(requestTimeoutMs);
  const response = await client.snapshots.prepare({ timeoutMs: hookTimeoutMs, freezeMs, ...limits });
  return { ...hookOutcome(response), ...(freezeMs === 0 ? { freeze: "off" } : freezeOutcome(response)) };
}

/**
 * Returns the time limit of a freeze: the sum of the longest suspension, the longest restore, the time to reach the
 * agent, and a margin.
 */
export function freezeTimeMs({ reachTimeoutMs }: Patience): number {
  return Math.min(2 * SUBSTRATE_CALL_MS + reachTimeoutMs + CALL_MS, FREEZE_LIMIT_MS);
}

/**
 * Returns how much of the freeze's time limit is left at least when the restore of the session begins: the limit
 * without the longest suspension. After the suspension, no time is used up, because the clock of a suspended guest
 * stands still.
 */
export function freezeLeftMs(patience: Patience): number {
  return freezeTimeMs(patience) - SUBSTRATE_CALL_MS;
}

function freezeOutcome({ frozen, freezeProblem }: HookResult): Pick<SuspendReport, "freeze" | "freezeProblem"> {
  if (frozen) return { freeze: "frozen" };
  return freezeProblem === "" ? { freeze: "unsupported" } : { freeze: "failed", freezeProblem };
}

function hookOutcome({ ran, timedOut, exitCode }: HookResult): HookOutcome {
  return { ran, timedOut, exitCode };
}

/** A hook's outcome as the value of a tag, such as "none", "exit 0" or "timed out". */
export function hookText({ ran, timedOut, exitCode }: HookOutcome): string {
  if (!ran) return "none";
  return timedOut ? "timed out" : `exit ${exitCode}`;
}

/** A freeze's result as the value of a tag, such as "frozen", "off", "unsupported" or "failed: no_cgroups". */
export function freezeText({ freeze, freezeProblem }: SuspendReport): string {
  // `freezeProblem` may contain a colon and names of the guest's processes after it. A tag must not contain these
  // names, so use only the part before the colon.
  const [problem = ""] = freezeProblem?.split(":") ?? [];
  return freeze === "failed" ? `failed: ${problem}` : freeze;
}

/** The result of waking up a sandbox. */
export interface Awakening {
  /** Time at which the agent had answered the restore steps, as Unix time in milliseconds by the host's clock. */
  readonly runEpochMs: number;
  readonly agentVersion: string;
  /** Full names of the gRPC services that the agent serves. */
  readonly agentServices: readonly string[];
  /** Outcome of the POST_RESTORE hook. */
  readonly postRestore: HookOutcome;
  /** Whether the workload is ready, as the agent's last Health answer says. */
  readonly ready: boolean;
  /** Guest time minus host time after the restore, in milliseconds. NaN if it is not known. */
  readonly clockErrorMs: number;
  readonly warnings: readonly Warning[];
  /**
   * Names, as the agent gives them, of the random generators that could not be reseeded. Clones of this guest may draw
   * the same numbers.
   */
  readonly notReseeded: readonly string[];
  /** Whether the agent refused a spec file in the guest, so that the old environment stays in use. */
  readonly isSpecRefused: boolean;
}

/**
 * Runs the restore steps with fresh entropy and the host's time, then the POST_RESTORE hook and Health. Rejects with
 * GuestError.
 *
 * @param done result of the restore steps, if they have already been run; then only the hook and Health follow
 */
export async function awaken(
  dial: Dial,
  { reachTimeoutMs, hookTimeoutMs }: Patience,
  ended?: AbortSignal,
  done?: DoneDuties,
): Promise<Awakening> {
  // The limit is long enough to reach the agent three times and to run a hook. At the limit, this function ends even if
  // a call hangs.
  const limit = timeoutSignal(3 * reachTimeoutMs + (hookTimeoutMs || HOOK_TIMEOUT_MS) + CALL_MS);
  const signal = currentSignal(limit, ended);
  const options = { reachTimeoutMs, hookTimeoutMs, signal };
  const outcome = await (done === undefined ? restoreSequence(dial, options) : finishRestore(dial, done, options));
  const { degraded } = outcome.repeated?.duties ?? outcome.duties;
  return {
    runEpochMs: outcome.dutiesDoneMs,
    agentVersion: outcome.agentVersion ?? "",
    agentServices: outcome.health.services,
    postRestore: hookOutcome(outcome.hook),
    ready: outcome.health.ready,
    clockErrorMs: outcome.clockErrorMs,
    warnings: outcome.warnings,
    notReseeded: degraded.split(";").filter((word) => NOT_RESEEDED.test(word)),
    isSpecRefused: hasRefusedSpec({ degraded }),
  };
}
