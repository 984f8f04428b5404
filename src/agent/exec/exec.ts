import {
  type ActivityClock,
  AgentError,
  type ChildProcess,
  type Clock,
  DEFAULT_LINGER_MS,
  EXEC_LIMIT,
  KILL_WAIT_MS,
  type SessionClock,
  Signal,
  TERM_GRACE_MS,
  TIMER_LIMIT_MS,
  unlessAborted,
} from "../domain/index.ts";
import { type CommandStarter, type Ending, TERMINATE } from "../session/index.ts";
import type { KeptCall } from "./attached-call.ts";
import type { ExecResult, RunningCommand } from "./command.ts";
import {
  type AttachRequest,
  checkAttachRequest,
  checkEndRequest,
  checkSignal,
  checkExecRequest,
  type EndRequest,
  ExecInputOrder,
  type ExecRequest,
  type KeepRequest,
  type SignalRequest,
} from "./frames.ts";
import { type CommandLeader, KeptCommand, type KeptCommandState, type KeptParts } from "./kept-command.ts";
import { KeptCommands } from "./kept-commands.ts";
import { type ExecCallParts, runCall } from "./exec-call.ts";
import { outputNotKept, type WorkloadOutput } from "./workload-output.ts";

export interface ExecParts {
  readonly starter: CommandStarter;
  readonly activity: ActivityClock;
  readonly clock: Clock;
  readonly sessionClock: SessionClock;
  /** The output of the workload; undefined if it is not kept. */
  readonly workloadOutput: WorkloadOutput | undefined;
}

/**
 * The client of a command that is not kept: the frames that it sends after the first one, and functions that send
 * frames to it.
 */
export interface ExecClient extends Pick<ExecCallParts, "input" | "output" | "signal"> {
  /** Address of the client: `address:port`, `vsock:CID:port`, or "unix". */
  readonly address: string;
}

/** How a kept command ended (message EndExecResponse). */
export interface EndedExec {
  readonly result: ExecResult;
  readonly forgotten: boolean;
  /**
   * Number of remaining processes that were ended; undefined if ending them was not requested, or if they are not
   * known.
   */
  readonly leftoversEnded: number | undefined;
  readonly leftoversUnknown: boolean;
}

/** Runs commands in the workload's session. */
export class Exec {
  readonly #parts: ExecParts;
  /** Commands that are not kept, each with the address of its client. */
  readonly #commands = new Map<RunningCommand, string>();
  readonly #running = new Set<Promise<void>>();
  readonly #kept = new KeptCommands();
  #closed: AgentError | undefined;

  constructor(parts: ExecParts) {
    this.#parts = parts;
  }

  /**
   * Runs one command. Resolves when its exit was passed to `output`.
   *
   * @throws AgentError if the command cannot be started or a frame is invalid; the signal's reason on abort
   */
  run(request: ExecRequest, client: ExecClient): Promise<void> {
    const { signal } = client;
    const { timeoutMs, stdio } = request;
    // While the command runs, neither this function nor #runAttached may refer to the request (up to 4 MiB).
    const run = this.#runAttached(this.#start(request, signal), {
      timeoutMs,
      inTerminal: stdio.kind === "terminal",
      ...client,
    });
    this.#running.add(run);
    return run.finally(() => this.#running.delete(run));
  }

  /**
   * Starts a kept command and attaches the call to it. Resolves when the command's exit was passed to the call. If the
   * call is aborted after the start has begun, the command continues.
   *
   * @throws AgentError as `run` and KeptCommand.attach; ALREADY_EXISTS or RESOURCE_EXHAUSTED if the command cannot be
   *   kept
   */
  keep(request: ExecRequest, keep: KeepRequest, call: KeptCall): Promise<void> {
    // The request (up to 4 MiB) must not stay in memory while the command runs.
    return untilOver(this.#startKept(request, keep, call), call.signal);
  }

  /**
   * Attaches a call to a kept command or, even during shutdown, to the workload's output. Resolves when the exit was
   * passed to the call.
   *
   * @throws AgentError NOT_FOUND if the command does not exist; otherwise like KeptCommand.attach and
   *   WorkloadOutput.attach
   */
  async attach(request: AttachRequest, call: KeptCall): Promise<void> {
    checkAttachRequest(request);
    if (request.workload) {
      const { workloadOutput } = this.#parts;
      if (workloadOutput === undefined) throw outputNotKept();
      return workloadOutput.attach(request, call);
    }
    if (this.#closed !== undefined) throw this.#closed;
    const command = await this.#kept.find(request.name, request.execId, call.signal);
    return command.attach(call, request);
  }

  /** Returns the first process of each running or kept command, to find the command that another process belongs to. */
  leaders(): readonly CommandLeader[] {
    const attached = [...this.#commands].map(([{ leader }, client]) => ({
      kind: "attached" as const,
      client,
      ...leader,
    }));
    return [...attached, ...this.#kept.leaders()];
  }

  /** Returns the kept commands in the order of their starts. */
  list(): readonly KeptCommandState[] {
    return this.#kept.list();
  }

  /**
   * Ends a kept command. What is done depends on its state:
   *
   * - A running command: ends its process tree. Then forgets the command if `forget` is set.
   * - An ended command: if `leftovers` is set, ends the processes that the command left running. Then forgets the
   *   command, even if `forget` is not set.
   *
   * @param signal aborted when the client is gone; cancels only the wait for a command that is still starting
   * @throws AgentError INVALID_ARGUMENT; NOT_FOUND if the command does not exist; FAILED_PRECONDITION if SIGKILL has no
   *   effect
   */
  async end(request: EndRequest, signal: AbortSignal): Promise<EndedExec> {
    checkEndRequest(request);
    const command = await this.#kept.find(request.name, request.execId, signal);
    const { result } = command.state;
    if (result !== undefined) {
      const leftovers = request.leftovers ? await command.endLeftovers(endingOf(request)) : undefined;
      command.free();
      const leftoversUnknown = request.leftovers && leftovers === undefined;
      return { result, forgotten: true, leftoversEnded: leftovers, leftoversUnknown };
    }
    const ended = await command.end(endingOf(request));
    if (request.forget) this.#kept.forget(command);
    const leftoversEnded = request.leftovers ? 0 : undefined;
    return { result: ended, forgotten: request.forget, leftoversEnded, leftoversUnknown: false };
  }

  /**
   * Sends a signal to the process group of a kept command.
   *
   * @param signal aborted when the client is gone
   * @throws AgentError INVALID_ARGUMENT; NOT_FOUND if the command does not exist; FAILED_PRECONDITION if it has ended
   */
  async signal({ name, execId, signal: number }: SignalRequest, signal: AbortSignal): Promise<void> {
    checkSignal("signal", number);
    (await this.#kept.find(name, execId, signal)).signal(number);
  }

  /** Refuses new commands from now on. */
  close(reason: AgentError): void {
    this.#closed ??= reason;
  }

  /**
   * Ends the process trees of all commands. Resolves when each client has been sent the exit of its command. If the
   * workload has already ended, also waits until its exit has been sent.
   */
  async terminateAll(): Promise<void> {
    for (const command of this.#commands.keys()) command.endBy("tree", TERMINATE);
    await Promise.allSettled([...this.#running, this.#kept.terminateAll(), this.#parts.workloadOutput?.exitsSent()]);
  }

  async #start(request: ExecRequest, signal: AbortSignal): Promise<ChildProcess> {
    this.#admit(request);
    this.#parts.activity.touch();
    return this.#startInTime(request, signal);
  }

  /**
   * Limits the start to timeout_ms, because chdir(2) and execve(2) may hang if a file system does not respond.
   *
   * @param signal aborted when the client is gone; this aborts the start
   */
  async #startInTime(request: ExecRequest, signal?: AbortSignal): Promise<ChildProcess> {
    const { starter, sessionClock } = this.#parts;
    const { timeoutMs } = request;
    if (timeoutMs === 0 || timeoutMs > TIMER_LIMIT_MS) return starter.start(request, signal);
    const late = new AbortController();
    const cancel = sessionClock.after(timeoutMs, () => late.abort());
    try {
      return await starter.start(request, signal === undefined ? late.signal : AbortSignal.any([signal, late.signal]));
    } catch (error) {
      if (!late.signal.aborted || !(error instanceof AgentError) || error.reason !== "CANCELLED") throw error;
      const message = `the command did not start within start.timeout_ms (${timeoutMs}); increase it`;
      throw new AgentError("FAILED_PRECONDITION", "EXEC_SETUP_FAILED", message, { field: "start.timeout_ms" }, error);
    } finally {
      cancel();
    }
  }

  #admit(request: ExecRequest): void {
    checkExecRequest(request);
    if (this.#closed !== undefined) throw this.#closed;
    // Refuses a start that cannot succeed (for example, in a frozen session) before it counts as user activity. The
    // starter makes the same check, but only after the start was counted.
    this.#parts.starter.check();
    if (this.#running.size + this.#kept.running >= EXEC_LIMIT) {
      throw new AgentError(
        "RESOURCE_EXHAUSTED",
        "TOO_MANY_EXECS",
        `the limit of ${EXEC_LIMIT} running commands is reached; wait for one to end or cancel one`,
        { limit: String(EXEC_LIMIT) },
      );
    }
  }

  /**
   * Starts a kept command. Resolves when the command runs. In the result, the promise `over` settles when the call
   * ends. It is wrapped in an object, because an async function that returns a promise resolves only when that promise
   * does.
   */
  async #startKept(request: ExecRequest, keep: KeepRequest, call: KeptCall): Promise<{ readonly over: Promise<void> }> {
    this.#admit(request);
    const { clock, activity, sessionClock } = this.#parts;
    const slot = this.#kept.reserve(keep);
    activity.touch();
    try {
      // The call's signal is not passed on, because the command must start even if the connection is lost now.
      const child = await this.#startInTime(request);
      const onProcessEnd = (): void => void (slot.isRunning = false);
      const onFreed = (): void => this.#kept.release(slot);
      const { timeoutMs } = request;
      const command = await this.#keptOrEnded(child, {
        ...slot,
        child,
        whenFull: keep.whenFull ?? "drop_oldest",
        awakeForMs: keep.awakeForMs,
        lingerMs: keep.lingerMs === 0 ? DEFAULT_LINGER_MS : keep.lingerMs,
        timeoutMs,
        order: new ExecInputOrder(request),
        clock,
        sessionClock,
        activity,
        onProcessEnd,
        onFreed,
      });
      this.#kept.began(slot, command);
      const over = command.attach(call);
      // If the call is already lost, nobody awaits this promise, so an unhandled rejection is prevented here.
      over.catch(() => {});
      return { over };
    } catch (error) {
      this.#kept.release(slot);
      throw error;
    }
  }

  /** Creates the KeptCommand of a started child. If there is no memory for the output buffer, the child is killed. */
  async #keptOrEnded(child: ChildProcess, parts: KeptParts): Promise<KeptCommand> {
    try {
      return new KeptCommand(parts);
    } catch (error) {
      await child.tree.killWithin(KILL_WAIT_MS);
      child.release();
      const message = `out of memory for a buffer of ${parts.bufferBytes} bytes; request a smaller one`;
      throw new AgentError(
        "RESOURCE_EXHAUSTED",
        "EXEC_RESOURCE_LIMIT",
        message,
        { field: "start.keep.buffer_bytes" },
        error,
      );
    }
  }

  async #runAttached(
    starting: Promise<ChildProcess>,
    attached: ExecClient & Pick<ExecCallParts, "timeoutMs" | "inTerminal">,
  ): Promise<void> {
    const { activity, sessionClock } = this.#parts;
    const child = await starting;
    let command: RunningCommand | undefined;
    await runCall({ ...attached, child, activity, sessionClock }, (running) => {
      command = running;
      this.#commands.set(running, attached.address);
      if (this.#closed !== undefined) running.endBy("tree", TERMINATE);
    }).finally(() => command && this.#commands.delete(command));
  }
}

function endingOf({ signal, graceMs }: EndRequest): Ending {
  return { signal: signal === 0 ? Signal.TERM : signal, graceMs: graceMs === 0 ? TERM_GRACE_MS : graceMs };
}

async function untilOver(starting: Promise<{ readonly over: Promise<void> }>, signal: AbortSignal): Promise<void> {
  const { over } = await unlessAborted(starting, signal);
  return over;
}
