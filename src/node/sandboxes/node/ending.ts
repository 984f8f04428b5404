import { setTimeout as pause } from "node:timers/promises";
import { GuestError } from "../../client/index.ts";
import { type Instance, SandboxError, sandboxError, type Substrate } from "../substrate/index.ts";
import { type Panic, panicOf } from "./panic.ts";
import { polled } from "./polled.ts";

/** Console lines in an error, and the most characters of each. */
const TAIL_LINES = 10;
const LINE_CHARACTERS = 300;
/** The whole console: the last lines are of init, and a workload may have said much. */
export const WHOLE_CONSOLE_LINES = 10_000;
/** The agent's first and last line of a boot (docs/agent/operations.md). What is in them is the guest's word. */
const FIRST_LINE = /"event":"agent_started"/;
const LAST_LINE = /\{"time":.*"event":"agent_ended".*\}/;
/** The agent's line about a spec file that it refuses. */
const REFUSAL_LINE = /\{"time":.*"event":"process_env_refused".*\}/;
/** Between two looks at whether an instance is off. */
const LOOK_PAUSE_MS = 1_000;
const PANICKED_STEP =
  "what was in its memory is lost: stop it, and resume it, which boots it again; if it happens each time, check the " +
  "kernel and the hypervisor of the daemon with the lines of the console";
/** Time for init to power off after the agent's end. */
const POWER_OFF_MS = 5_000;

/** A sandbox that may end. */
export interface Subject {
  readonly name: string;
  readonly substrate: Substrate;
  /** Its instance as it is now. */
  readonly instance: () => Promise<Instance | undefined>;
  /** Port of its agent. */
  readonly agentPort: number;
  /** Between two checks whether it is off, in milliseconds. Default: 1 s. */
  readonly lookPauseMs?: number | undefined;
}

/**
 * Does something with the agent of a sandbox that has been restored or forked. Rejects with AGENT_ENDED as soon as the
 * instance is off, and with AGENT_UNREACHABLE as soon as its kernel has panicked, and where the agent fails otherwise.
 * All have the end of the console.
 *
 * @param action ends when its signal is aborted
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
  const looking = offInstance(subject, over.signal, onPanic).then((instance) => {
    if (instance !== undefined) off.abort();
    return instance;
  });
  try {
    return await action(off.signal);
  } catch (error) {
    if (!isAgents(error)) throw error;
    if (panic !== undefined) throw panicked(panic, error);
    // An instance that refuses connections may be powering off.
    const waitMs = error instanceof GuestError && error.status === "UNAVAILABLE" ? POWER_OFF_MS : 0;
    await Promise.race([looking, pause(waitMs, undefined, { signal: over.signal })]);
    over.abort();
    const instance = (await looking) ?? (await subject.instance().catch(() => undefined));
    if (instance === undefined) throw error;
    if (isOff(instance)) throw await agentEnded(subject, instance);
    throw withConsole(error, await ending(subject.substrate, instance.id));
  } finally {
    over.abort();
  }
}

/** The error about an instance that is off: an agent that refuses its configuration exits, and init then powers off. */
export async function agentEnded({ name, substrate }: Subject, instance: Instance): Promise<SandboxError> {
  const { id, exitCode, exitMessage } = instance;
  const status =
    exitCode === undefined ? "" : ` with status ${exitCode}${exitMessage === undefined ? "" : ` (${exitMessage})`}`;
  const message = `the agent of ${name} ended before it answered${status}${afterColon(await reasonOfEnd(substrate, id))}`;
  return new SandboxError("AGENT_ENDED", message, undefined, { consoleTail: await ending(substrate, id) });
}

/** A reason at the end of a sentence, if there is one. */
export function afterColon(reason: string | undefined): string {
  return reason === undefined ? "" : `: ${reason}`;
}

/** What the agent's last line on the console says has happened; undefined where there is no such line. */
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

/** Why the agent has last refused a spec file, in the words of its log; undefined where the console does not say it. */
export async function reasonOfRefusal(substrate: Substrate, id: string): Promise<string | undefined> {
  const lines = await substrate.console(id, WHOLE_CONSOLE_LINES).catch(() => []);
  const [line = "{}"] = REFUSAL_LINE.exec(lines.findLast((each) => REFUSAL_LINE.test(each)) ?? "") ?? [];
  try {
    const { problem } = JSON.parse(line) as { readonly problem?: unknown };
    return typeof problem === "string" ? problem.slice(0, LINE_CHARACTERS) : undefined;
  } catch {
    return undefined;
  }
}

export function isOff({ state }: Pick<Instance, "state">): boolean {
  return state === "Stopped" || state === "Shutdown";
}

/** The lines of a console from before the agent's first. */
export function linesBeforeAgent(lines: readonly string[]): readonly string[] {
  const at = lines.findIndex((line) => FIRST_LINE.test(line));
  return at < 0 ? lines : lines.slice(0, at);
}

function wholeConsole(substrate: Substrate, id: string): Promise<readonly string[]> {
  return consoleTail(substrate, id, WHOLE_CONSOLE_LINES);
}

/** The error about a guest whose kernel has panicked after a restore. */
function panicked({ line, consoleTail: tail }: Panic, cause: unknown): SandboxError {
  const message = `the guest's kernel has panicked: ${line}`;
  return new SandboxError("AGENT_UNREACHABLE", message, cause, { consoleTail: tail, nextStep: PANICKED_STEP });
}

/** The end of the console. A failure to read it must not hide the error. */
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

/** Resolves with the instance once it is off; with undefined once the signal is aborted. */
async function offInstance(
  { substrate, agentPort, instance, lookPauseMs = LOOK_PAUSE_MS }: Subject,
  signal: AbortSignal,
  onPanic: (panic: Panic) => void,
): Promise<Instance | undefined> {
  const isSeen = (found: Instance | undefined): found is Instance => found !== undefined && isOff(found);
  let looks = 0;
  const look = async (): Promise<Instance | undefined> => {
    if (signal.aborted) return undefined;
    // A daemon that is away says nothing about the instance.
    const found = await instance().catch(() => undefined);
    // Each time twice as late: for the console the daemon starts a process.
    const looksAtConsole = Number.isInteger(Math.log2(++looks));
    if (found === undefined || isOff(found) || !looksAtConsole) return found;
    const panic = await panicOf(substrate, found, agentPort, wholeConsole);
    if (panic !== undefined) onPanic(panic);
    return found;
  };
  await pause(lookPauseMs, undefined, { signal }).catch(() => undefined);
  const found = await polled(look, isSeen, { pauseMs: lookPauseMs, signal });
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
