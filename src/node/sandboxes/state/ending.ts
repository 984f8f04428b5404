import { setTimeout as pause } from "node:timers/promises";
import { GuestError } from "../../client/index.ts";
import { type Instance, lasting, SandboxError, sandboxError, type Substrate } from "../substrate/index.ts";
import { type Panic, panicOf } from "./panic.ts";
import { polled } from "./polled.ts";

/** Limit on the number of console lines that an error contains. */
const TAIL_LINES = 10;
/** Limit on the length of each of these lines, in characters. */
const LINE_CHARACTERS = 300;
/**
 * Number of console lines to request in a search for lines of the agent: practically the whole console. The last lines
 * would not suffice, because the workload and init print lines after those of the agent.
 */
export const WHOLE_CONSOLE_LINES = 10_000;
/** The agent's first and last log line of a boot (docs/agent/operations.md). A guest can forge them. */
const FIRST_LINE = /"event":"agent_started"/;
const LAST_LINE = /\{"time":.*"event":"agent_ended".*\}/;
/** The agent's log line about a spec file that it refuses. */
const REFUSAL_LINE = /\{"time":.*"event":"process_env_refused".*\}/;
/** Pause between two checks of whether an instance is off. */
const POLL_INTERVAL_MS = 1_000;
const PANICKED_STEP =
  "the content of the sandbox's memory is lost: to boot the sandbox again, stop and resume it; if the kernel panics each time, look for the reason on the console, and check the daemon's kernel and hypervisor";
/** Time that init may take to power off after the agent has exited. */
const POWER_OFF_MS = 5_000;
/**
 * Time that a line of the agent's log may take to appear on the console, and the pause between two readings of the
 * console.
 */
const LOG_DELAY_MS = 3_000;
const LOG_PAUSE_MS = 100;

/** The instance of a sandbox, and how to fetch its state, for callers that wait until the instance is off. */
export interface Subject {
  readonly name: string;
  readonly substrate: Substrate;
  /** Fetches the current state of the sandbox's instance. Undefined if the instance is gone. */
  readonly instance: () => Promise<Instance | undefined>;
  readonly agentPort: number;
  /** Pause between two checks of whether the instance is off, in milliseconds. Default: 1 s. */
  readonly pollIntervalMs?: number | undefined;
}

/**
 * Runs an action with the agent of a restored or forked sandbox, and watches the instance at the same time. Rejects
 * with AGENT_ENDED as soon as the instance is off, and with AGENT_UNREACHABLE as soon as its kernel has panicked; both
 * errors have the last console lines. Otherwise rejects with the action's error if it fails.
 *
 * @param action must end when its signal is aborted
 */
export async function whileUp<Value>(
  subject: Subject,
  action: (signal: AbortSignal) => Promise<Value>,
): Promise<Value> {
  const over = new AbortController();
  const off = new AbortController();
  let panic: Panic | undefined;
  const onPanic = (found: Panic): void => {
    panic = found;
    off.abort();
  };
  const poll = lasting(() => offInstance(subject, over.signal, onPanic)).then((instance) => {
    if (instance !== undefined) off.abort();
    return instance;
  });
  try {
    return await action(off.signal);
  } catch (error) {
    if (!isAgents(error)) throw error;
    if (panic !== undefined) throw panicked(panic, error);
    // If the agent cannot be reached, the instance may be powering off. Wait up to POWER_OFF_MS for that, because
    // AGENT_ENDED is a more helpful error if the instance is off.
    const waitMs = error instanceof GuestError && error.status === "UNAVAILABLE" ? POWER_OFF_MS : 0;
    await Promise.race([poll, pause(waitMs, undefined, { signal: over.signal })]);
    over.abort();
    const instance = (await poll) ?? (await subject.instance().catch(() => undefined));
    if (instance === undefined) throw error;
    if (isOff(instance)) throw await agentEnded(subject, instance);
    throw withConsole(error, await ending(subject.substrate, instance.id));
  } finally {
    over.abort();
  }
}

/**
 * Creates the error for an instance that is off. The usual cause is an agent that refuses its configuration and exits,
 * after which init powers off.
 */
export async function agentEnded({ name, substrate }: Subject, instance: Instance): Promise<SandboxError> {
  const { id, exitCode, exitMessage } = instance;
  const details = exitMessage === undefined ? "" : ` (${exitMessage})`;
  const status = exitCode === undefined ? "" : ` with status ${exitCode}${details}`;
  const message = `the agent of ${name} ended before it answered${status}${afterColon(await reasonOfEnd(substrate, id))}`;
  return new SandboxError("AGENT_ENDED", message, undefined, { consoleTail: await ending(substrate, id) });
}

/** Formats a reason as the end of a sentence (": reason"); empty if there is no reason. */
export function afterColon(reason: string | undefined): string {
  return reason === undefined ? "" : `: ${reason}`;
}

/** The reason for the agent's exit, from its last line on the console; undefined if there is no such line. */
export async function reasonOfEnd(substrate: Substrate, id: string): Promise<string | undefined> {
  const lines = await substrate.console(id, WHOLE_CONSOLE_LINES).catch(() => []);
  const last = lines.findLast((line) => FIRST_LINE.test(line) || LAST_LINE.test(line)) ?? "";
  try {
    const { reason } = JSON.parse(LAST_LINE.exec(last)?.[0] ?? "{}") as { readonly reason?: unknown };
    return typeof reason === "string" ? reason.slice(0, LINE_CHARACTERS) : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Returns the reason for the agent's last refusal of a spec file, from the agent's log on the console. The agent writes
 * this log line after its answer, so this function waits for the line. Returns undefined if the line does not appear
 * within LOG_DELAY_MS.
 */
export async function reasonOfRefusal(substrate: Substrate, id: string): Promise<string | undefined> {
  const read = async (): Promise<string | undefined> => {
    const lines = await substrate.console(id, WHOLE_CONSOLE_LINES).catch(() => []);
    return REFUSAL_LINE.exec(lines.findLast((line) => REFUSAL_LINE.test(line)) ?? "")?.[0];
  };
  const found = await polled(read, (line) => line !== undefined, { pauseMs: LOG_PAUSE_MS, limitMs: LOG_DELAY_MS });
  try {
    const { problem } = JSON.parse(found ?? "{}") as { readonly problem?: unknown };
    return typeof problem === "string" ? problem.slice(0, LINE_CHARACTERS) : undefined;
  } catch {
    return undefined;
  }
}

export function isOff({ state }: Pick<Instance, "state">): boolean {
  return state === "Stopped" || state === "Shutdown";
}

/** Returns the console's lines before the first line of the agent, which come from the kernel and init. */
export function linesBeforeAgent(lines: readonly string[]): readonly string[] {
  const at = lines.findIndex((line) => FIRST_LINE.test(line));
  return at < 0 ? lines : lines.slice(0, at);
}

function wholeConsole(substrate: Substrate, id: string): Promise<readonly string[]> {
  return consoleTail(substrate, id, WHOLE_CONSOLE_LINES);
}

function panicked({ line, consoleTail: tail }: Panic, cause: unknown): SandboxError {
  const message = `the guest's kernel has panicked: ${line}`;
  return new SandboxError("AGENT_UNREACHABLE", message, cause, { consoleTail: tail, nextStep: PANICKED_STEP });
}

/** Returns the last console lines. If they cannot be read, returns none, so that the original error is still reported. */
export function ending(substrate: Substrate, id: string): Promise<readonly string[]> {
  return consoleTail(substrate, id).catch(() => []);
}

export async function consoleTail(
  substrate: Substrate,
  id: string,
  count: number = TAIL_LINES,
): Promise<readonly string[]> {
  const lines = await substrate.console(id, count);
  return lines.map((line) => line.slice(0, LINE_CHARACTERS));
}

/** Resolves with the instance once it is off, or with undefined once the signal is aborted. */
async function offInstance(
  { substrate, agentPort, instance, pollIntervalMs = POLL_INTERVAL_MS }: Subject,
  signal: AbortSignal,
  onPanic: (panic: Panic) => void,
): Promise<Instance | undefined> {
  const isSeen = (found: Instance | undefined): found is Instance => found !== undefined && isOff(found);
  let looks = 0;
  const look = async (): Promise<Instance | undefined> => {
    if (signal.aborted) return undefined;
    // If the daemon does not answer, the state of the instance is unknown.
    const found = await instance().catch(() => undefined);
    // Read the console only at checks 1, 2, 4, 8, …, because the daemon starts a process for each read.
    const looksAtConsole = Number.isInteger(Math.log2(++looks));
    if (found === undefined || isOff(found) || !looksAtConsole) return found;
    const panic = await panicOf(substrate, found, agentPort, wholeConsole);
    if (panic !== undefined) onPanic(panic);
    return found;
  };
  await pause(pollIntervalMs, undefined, { signal }).catch(() => undefined);
  const found = await polled(look, isSeen, { pauseMs: pollIntervalMs, signal });
  return isSeen(found) ? found : undefined;
}

function isAgents(error: unknown): error is GuestError | SandboxError {
  return error instanceof GuestError || (error instanceof SandboxError && error.code === "AGENT_UNREACHABLE");
}

function withConsole(error: GuestError | SandboxError, tail: readonly string[]): unknown {
  const failure = sandboxError(error);
  if (!(failure instanceof SandboxError)) return failure;
  return new SandboxError(failure.code, failure.message, failure.cause, { consoleTail: tail });
}
