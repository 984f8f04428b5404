import { setTimeout as pause } from "node:timers/promises";
import { messageOf } from "../domain/index.ts";
import {
  connect,
  type GuestClient,
  GuestError,
  type HealthResponse,
  HookKind,
  type RestoreOutcome,
  restoreDuties,
  restoreSequence,
  type RunHookResponse,
} from "../client/index.ts";
import type { ClientCredentials } from "../credentials/index.ts";
import { SandboxError } from "./errors.ts";
import type { GuestFile } from "./injection.ts";
import type { HookOutcome } from "./journal.ts";

/** Longest attempt to reach an agent that may not be there yet. */
const ATTEMPT_MS = 2_000;
const PAUSE_MS = 100;
/** Time for a call over the network, beside the work that it asks for. */
const CALL_MS = 10_000;
/** The agent's default for a hook. */
const HOOK_TIMEOUT_MS = 30_000;
/** With a larger clock error after the duties, the guest's schedules, leases and logs are wrong. */
const CLOCK_OFF_MS = 100;

/** Limits of waiting for an agent. */
export interface Patience {
  /** For a booted or restored agent to answer, in milliseconds. */
  readonly reachMs: number;
  /** For each of the hooks, in milliseconds; 0: the agent's own time. */
  readonly hookTimeoutMs: number;
}

/** Makes a client of an agent, wherever the agent is by then. */
export type Dial = (credentials: ClientCredentials) => Promise<GuestClient>;

/** A client of the agent at an address, with these credentials. */
export function dialAt(address: string, { caPem, certPem, keyPem, token }: ClientCredentials): GuestClient {
  return connect({ address, caPem, certPem, keyPem, token });
}

/**
 * Dials an agent for one question. A function of its own, because esbuild's form of `using` for Node 20 rethrows the error
 * of an earlier turn when it is in a loop.
 */
async function asked<Answer>(
  dial: () => Promise<GuestClient>,
  ask: (client: GuestClient) => Promise<Answer>,
): Promise<Answer> {
  using client = await dial();
  return await ask(client);
}

/**
 * The first Health of an agent that boots. Rejects with SandboxError (AGENT_UNREACHABLE) when it has not answered in time.
 * @param look rejects when the agent will not come any more; called after each failed attempt
 */
export async function firstHealth(
  dial: () => Promise<GuestClient>,
  look: () => Promise<void>,
  reachMs: number,
): Promise<{ readonly health: HealthResponse; readonly agentVersion: string }> {
  const untilMs = performance.now() + reachMs;
  for (;;) {
    let problem;
    try {
      const deadlineMs = Math.max(1, Math.min(ATTEMPT_MS, untilMs - performance.now()));
      return await asked(dial, async (client) => {
        const health = await client.health({ waitForReady: true, deadlineMs });
        return { health, agentVersion: client.agentVersion ?? "" };
      });
    } catch (error) {
      if (!(error instanceof GuestError)) throw error;
      problem = error;
    }
    await look();
    if (performance.now() >= untilMs) {
      throw new SandboxError(
        "AGENT_UNREACHABLE",
        `the agent has not answered within ${reachMs} ms: ${problem.message}`,
        problem,
      );
    }
    await pause(PAUSE_MS);
  }
}

/** Runs the PRE_SNAPSHOT hook. A hook that fails does not stop the suspension: its outcome is recorded. */
export async function quiesce(client: GuestClient, { hookTimeoutMs }: Patience): Promise<HookOutcome> {
  const deadlineMs = (hookTimeoutMs || HOOK_TIMEOUT_MS) + CALL_MS;
  return hookOutcome(await client.runHook({ kind: HookKind.PRE_SNAPSHOT, timeoutMs: hookTimeoutMs }, { deadlineMs }));
}

function hookOutcome({ ran, timedOut, exitCode }: RunHookResponse): HookOutcome {
  return { ran, timedOut, exitCode };
}

/** A hook's outcome as text for tags: "none", "exit 0", "timed out". */
export function hookText({ ran, timedOut, exitCode }: HookOutcome): string {
  if (!ran) return "none";
  return timedOut ? "timed out" : `exit ${exitCode}`;
}

/** Something that went wrong with a sandbox that runs nevertheless. */
export interface Warning {
  readonly code: "DUTIES_DEGRADED" | "CLOCK_OFF" | "HOOK_FAILED" | "HOOK_TIMED_OUT";
  readonly message: string;
}

/** How a sandbox woke up. */
export interface Awakening {
  /** Host's time after the answer to the duties, in milliseconds of the epoch. */
  readonly runEpochMs: number;
  readonly agentVersion: string;
  /** The POST_RESTORE hook. */
  readonly postRestore: HookOutcome;
  /** Whether the workload is ready, by the agent's last verdict. */
  readonly ready: boolean;
  /** Guest time minus host time at the end, in milliseconds. NaN: not known. */
  readonly clockErrorMs: number;
  readonly warnings: readonly Warning[];
}

/** Duties with fresh entropy and time, POST_RESTORE, Health. Rejects with GuestError. */
export async function awaken(
  dial: (areDutiesDone: boolean) => Promise<GuestClient>,
  { reachMs, hookTimeoutMs }: Patience,
): Promise<Awakening> {
  // The sequence dials up to three times and runs a hook; the signal ends it, whatever hangs.
  const signal = AbortSignal.timeout(3 * reachMs + (hookTimeoutMs || HOOK_TIMEOUT_MS) + CALL_MS);
  const outcome = await restoreSequence(dial, { reachMs, hookTimeoutMs, signal });
  return {
    runEpochMs: outcome.dutiesDoneMs,
    agentVersion: outcome.agentVersion ?? "",
    postRestore: hookOutcome(outcome.hook),
    ready: outcome.health.ready,
    clockErrorMs: outcome.clockErrorMs,
    warnings: warningsOf(outcome),
  };
}

function warningsOf({ duties, repeated, hook, clockErrorMs }: RestoreOutcome): readonly Warning[] {
  const warnings: Warning[] = [];
  const degraded = repeated?.duties.degraded ?? duties.degraded;
  if (degraded !== "") warnings.push({ code: "DUTIES_DEGRADED", message: `the duties could not do: ${degraded}` });
  if (Math.abs(clockErrorMs) > CLOCK_OFF_MS) {
    const message = `the guest's clock is ${clockErrorMs.toFixed(0)} ms off after the duties`;
    warnings.push({ code: "CLOCK_OFF", message });
  }
  if (hook.timedOut) {
    warnings.push({ code: "HOOK_TIMED_OUT", message: "the POST_RESTORE hook was killed at its timeout" });
  } else if (hook.exitCode !== 0) {
    warnings.push({ code: "HOOK_FAILED", message: `the POST_RESTORE hook ended with status ${hook.exitCode}` });
  }
  return warnings;
}

/** The two sets of credentials of a fork. */
export interface Succession {
  /** Those of its origin, with which it wakes up. */
  readonly parent: ClientCredentials;
  readonly fresh: ClientCredentials;
  /** The guest's part of the fresh ones. */
  readonly files: readonly GuestFile[];
}

/**
 * Gives a fork that has woken up credentials of its own: duties, which end the sessions of its origin; the new credential
 * files; duties once more, for which the agent reads them. In between the agent may take any mixture of old and new, so the
 * mixtures are tried. Resolves once it answers to the new ones. Rejects with GuestError.
 */
export async function awakenFork(dial: Dial, succession: Succession, patience: Patience): Promise<Awakening> {
  const accepted = (areDutiesDone: boolean): Promise<GuestClient> =>
    acceptedClient(dial, mixturesOf(succession, areDutiesDone), patience.reachMs);
  const inherited = (): Promise<GuestClient> => dial(succession.parent);
  const { reachMs } = patience;
  await restoreDuties(inherited, { reachMs, signal: AbortSignal.timeout(3 * reachMs) });
  await writeAll(inherited, () => accepted(false), succession.files, reachMs);
  const awakening = await awaken(accepted, patience);
  using client = await dial(succession.fresh);
  await client.health({ waitForReady: true, deadlineMs: patience.reachMs });
  return awakening;
}

/** Writes all files; all of them again where the agent took a part of them, and so ended the connection. */
async function writeAll(
  inherited: () => Promise<GuestClient>,
  accepted: () => Promise<GuestClient>,
  files: readonly GuestFile[],
  reachMs: number,
): Promise<void> {
  const untilMs = performance.now() + reachMs;
  for (let next = inherited; ; next = accepted) {
    try {
      await asked(next, async (client) => {
        for (const { path, content } of files) {
          await client.writeFile(path, content, { mode: 0o600 }, { deadlineMs: CALL_MS });
        }
      });
      return;
    } catch (error) {
      if (!(error instanceof GuestError) || performance.now() >= untilMs) throw error;
    }
    await pause(PAUSE_MS);
  }
}

/** All mixtures that the agent may take, the likeliest first: each attempt with another is a refused call in its log. */
function mixturesOf({ parent, fresh }: Succession, areDutiesDone: boolean): readonly ClientCredentials[] {
  const caPem = Buffer.concat([parent.caPem, fresh.caPem]);
  const whole = [
    { ...parent, caPem },
    { ...fresh, caPem },
  ];
  if (areDutiesDone) whole.reverse();
  return [...whole, { ...fresh, caPem, token: parent.token }, { ...parent, caPem, token: fresh.token }];
}

/** A client with the credentials that the agent takes at this moment. */
async function acceptedClient(
  dial: Dial,
  mixtures: readonly ClientCredentials[],
  reachMs: number,
): Promise<GuestClient> {
  const untilMs = performance.now() + reachMs;
  for (;;) {
    let problem: unknown;
    for (const credentials of mixtures) {
      const client = await dial(credentials);
      try {
        await client.health({ deadlineMs: ATTEMPT_MS });
        return client;
      } catch (error) {
        client.close();
        problem ??= error;
      }
    }
    if (performance.now() >= untilMs) {
      throw new SandboxError(
        "AGENT_UNREACHABLE",
        `the fork takes neither old nor new credentials: ${messageOf(problem)}`,
        problem,
      );
    }
    await pause(PAUSE_MS);
  }
}
