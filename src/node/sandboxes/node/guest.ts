import {
  completeRestore,
  type Dial,
  type DoneDuties,
  type GuestClient,
  GuestError,
  hasRefusedSpec,
  HookKind,
  type HookResult,
  restoreSequence,
} from "../../client/index.ts";
import { SandboxError } from "../substrate/index.ts";
import type { HookOutcome, SuspendReport } from "./journal.ts";
import { polled } from "./polled.ts";
import type { Warning } from "./warnings.ts";

/** Longest attempt to reach an agent that may not be there yet, and the pause before the next. */
const ATTEMPT_MS = 2_000;
const PAUSE_MS = 100;
/** Time for a call over the network, on top of its work. */
export const CALL_MS = 10_000;
/** The agent's default for a hook. */
const HOOK_TIMEOUT_MS = 30_000;
/** Time for one call of the substrate, which cancels it then (hypeman 8853445, cmd/api/main.go:523). */
const SUBSTRATE_CALL_MS = 60_000;
/** The agent's limit of a freeze. */
const FREEZE_LIMIT_MS = 600_000;
/** What a freeze may add to the answer's time: two seconds for starts, two for processes to stop. */
const FREEZE_WAIT_MS = 4_000;

/** Tokens of `degraded` about generators, not about the clock or the entropy's credit. */
const NOT_RESEEDED = /^(?:entropy_open|entropy_short|crng_reseed(?!:unverified)|openssl_drbg)/;

/** Limits of waiting for an agent. */
export interface Patience {
  /** For a booted or restored agent to answer, in milliseconds. */
  readonly reachTimeoutMs: number;
  /** For each of the hooks, in milliseconds; 0: the agent's own time. */
  readonly hookTimeoutMs: number;
}

/**
 * Tries again while the agent fails, and resolves with what an attempt resolves with. Rejects with SandboxError
 * (AGENT_UNREACHABLE) once the time is up, and at once with any error that is not the agent's.
 *
 * @param what the failure's text, such as "the agent has not answered"
 * @param attempt gets the milliseconds that an answer may take
 * @param signal aborting gives up at the next failure
 */
export async function reached<Value>(
  reachTimeoutMs: number,
  what: string,
  attempt: (deadlineMs: number) => Promise<Value>,
  signal?: AbortSignal,
): Promise<Value> {
  const untilMs = performance.now() + reachTimeoutMs;
  const outcome = await polled(
    () =>
      attempt(Math.max(1, Math.min(ATTEMPT_MS, untilMs - performance.now()))).then(
        (value) => ({ value }),
        (error: unknown) => ({ error }),
      ),
    (seen) => "value" in seen || !(seen.error instanceof GuestError),
    { pauseMs: PAUSE_MS, limitMs: reachTimeoutMs, signal },
  );
  if ("value" in outcome) return outcome.value;
  const { error } = outcome;
  if (!(error instanceof GuestError)) throw error;
  throw new SandboxError("AGENT_UNREACHABLE", `${what} within ${reachTimeoutMs} ms: ${error.message}`, error);
}

/**
 * Whether a session is frozen from before its suspension until its duties. "on": if possible; the result is recorded.
 * "required": no suspension without a freeze. "off": it runs until the suspension, and from the resume on.
 */
export type Freeze = "on" | "required" | "off";

/** Runs PRE_SNAPSHOT, whose failure is recorded, and freezes the session. Rejects with GuestError, perhaps frozen. */
export async function quiesce(client: GuestClient, freeze: Freeze, patience: Patience): Promise<SuspendReport> {
  const { hookTimeoutMs } = patience;
  const timeoutMs = (hookTimeoutMs || HOOK_TIMEOUT_MS) + FREEZE_WAIT_MS + CALL_MS;
  const freezeMs = freeze === "off" ? 0 : freezeTimeMs(patience);
  const request = { kind: HookKind.PRE_SNAPSHOT, timeoutMs: hookTimeoutMs, freezeMs };
  const response = await client.runHook(request, { timeoutMs });
  return { ...hookOutcome(response), ...(freezeMs === 0 ? { freeze: "off" } : freezeOutcome(response)) };
}

/** How long a freeze lasts: a suspension, a restore and the way to the duties, each as slow as it may be, and a margin. */
export function freezeTimeMs({ reachTimeoutMs }: Patience): number {
  return Math.min(2 * SUBSTRATE_CALL_MS + reachTimeoutMs + CALL_MS, FREEZE_LIMIT_MS);
}

/** What is left of a freeze when a restore begins: its guest's clock stood still, and the suspension had its limit. */
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

/** A hook's outcome as text for tags: "none", "exit 0", "timed out". */
export function hookText({ ran, timedOut, exitCode }: HookOutcome): string {
  if (!ran) return "none";
  return timedOut ? "timed out" : `exit ${exitCode}`;
}

/** A freeze's result as text for tags: "frozen", "off", "unsupported", "failed: no_cgroups". */
export function freezeText({ freeze, freezeProblem }: SuspendReport): string {
  // Cut at the colon: process names of the guest may follow.
  return freeze === "failed" ? `failed: ${freezeProblem?.split(":")[0] ?? ""}` : freeze;
}

/** How a sandbox woke up. */
export interface Awakening {
  /** Host's time after the answer to the duties, in milliseconds of the epoch. */
  readonly runEpochMs: number;
  readonly agentVersion: string;
  /** HealthResponse.services. */
  readonly agentServices: readonly string[];
  /** The POST_RESTORE hook. */
  readonly postRestore: HookOutcome;
  /** Whether the workload is ready, by the agent's last verdict. */
  readonly ready: boolean;
  /** Guest time minus host time at the end, in milliseconds. NaN: not known. */
  readonly clockErrorMs: number;
  readonly warnings: readonly Warning[];
  /** Generators that could not be reseeded, as the agent names them: another guest may draw the same numbers. */
  readonly notReseeded: readonly string[];
  /** Whether the agent refused a spec file in the guest, so that its old variables stay in force. */
  readonly isSpecRefused: boolean;
}

/**
 * Duties with fresh entropy and time, POST_RESTORE, Health. Rejects with GuestError.
 *
 * @param done duties that are not done again
 */
export async function awaken(
  dial: Dial,
  { reachTimeoutMs, hookTimeoutMs }: Patience,
  ended?: AbortSignal,
  done?: DoneDuties,
): Promise<Awakening> {
  // The sequence dials up to three times and runs a hook; the signal ends it, whatever hangs.
  const limit = AbortSignal.timeout(3 * reachTimeoutMs + (hookTimeoutMs || HOOK_TIMEOUT_MS) + CALL_MS);
  const signal = ended === undefined ? limit : AbortSignal.any([limit, ended]);
  const options = { reachTimeoutMs, hookTimeoutMs, signal };
  const outcome = await (done === undefined ? restoreSequence(dial, options) : completeRestore(dial, done, options));
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
