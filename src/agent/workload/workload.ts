import {
  type AgentError,
  type ChildProcess,
  type CommandAccounts,
  type Log,
  type ProcessEnd,
  type ProcessSpec,
  Signal,
  TERM_GRACE_MS,
  unlessAborted,
} from "../domain/index.ts";
import { type CommandStarter, endProcesses } from "../session/index.ts";
import { type EndedByAgent, describeEnd } from "./describe-end.ts";

/** Exit code of a workload that was killed: 128 + SIGKILL. */
const KILLED_STATUS = 137;

interface OutputKeeper {
  /** Starts reading the output of a workload that was just started. */
  begin(child: ChildProcess): void;
  /**
   * Reads the rest of the output. Called after the end of the workload and its descendants, but before
   * `ChildProcess.release`.
   *
   * @param end how the workload ended; undefined if SIGKILL did not end it, because it hangs in the kernel
   */
  finish(end: (ProcessEnd & CommandAccounts) | undefined): Promise<void>;
}

export interface WorkloadParts {
  readonly starter: CommandStarter;
  readonly spec: ProcessSpec;
  readonly log: Log;
  /** Keeps the workload's output. If undefined, the workload writes to the agent's own streams. */
  readonly output: OutputKeeper | undefined;
}

/** The user's main process, for which the agent was started, and all its descendants. */
export class Workload {
  readonly #parts: WorkloadParts;
  readonly #startAbort = new AbortController();
  /** Resolves with the agent's exit code when the workload has ended. */
  readonly #status = Promise.withResolvers<number>();
  #child: ChildProcess | undefined;
  #stopping: Promise<void> | undefined;
  #ending: EndedByAgent;
  #running = false;
  #ended: (ProcessEnd & CommandAccounts) | undefined;
  #endDescription = "the workload has not ended";

  constructor(parts: WorkloadParts) {
    this.#parts = parts;
  }

  /** The workload's process and cgroup; undefined before the start. The pid is undefined once the process has ended. */
  get leader(): { readonly pid: number | undefined; readonly cgroup: string | undefined } | undefined {
    const child = this.#child;
    return child && { pid: this.#running ? child.pid : undefined, cgroup: child.cgroup };
  }

  get configured(): boolean {
    return this.#parts.spec.args.length > 0;
  }

  get running(): boolean {
    return this.#running;
  }

  /** A sentence for people that says how the workload ended, or that it has not ended. */
  get endDescription(): string {
    return this.#endDescription;
  }

  /** Grace period of the workload's whole tree between SIGTERM and SIGKILL, in milliseconds. */
  get graceMs(): number {
    return this.#parts.spec.stopGraceMs;
  }

  /**
   * Starts the workload. Resolves when it runs, or when its start was abandoned. In the result, `ended` resolves with
   * the exit code for the agent: the exit code of the workload, or 128 + n if signal n has killed it. After that,
   * always call `stop`, because descendants of the workload may still run.
   *
   * @throws AgentError if the workload cannot be started
   */
  async start(): Promise<{ readonly ended: Promise<number> }> {
    const { starter, spec, log, output } = this.#parts;
    const { signal } = this.#startAbort;
    try {
      signal.throwIfAborted();
      // unlessAborted() ends this wait at once after an abort: a child that hangs in the kernel survives even SIGKILL.
      const child = await unlessAborted(starter.startWorkload(spec.args, output !== undefined, signal), signal);
      output?.begin(child);
      this.#child = child;
      this.#running = true;
      log.info("workload_started", { pid: child.pid });
      void child.ended.then((end) => this.#onEnd(child, end));
    } catch (error) {
      if (!signal.aborted) throw error;
      log.warn("workload_start_abandoned", { signal: Number(signal.reason) });
      this.#endDescription = "the workload was not started: a signal asked the agent to stop first";
      this.#status.resolve(128 + Number(signal.reason));
    }
    return { ended: this.#status.promise };
  }

  /**
   * Abandons a start, even one that hangs, because a signal asks the agent to exit. Does nothing once the workload
   * runs.
   */
  abandonStart(signal: number): void {
    this.#startAbort.abort(signal);
  }

  /** Forwards a signal to the workload. Does nothing if the workload is not running. */
  forward(signal: number): void {
    if (this.#running) this.#child?.signal(signal);
  }

  /**
   * Ends the workload's whole tree: sends SIGTERM and, after the grace period, SIGKILL. Resolves when the whole tree
   * has ended.
   *
   * - If the workload's first process has already ended by itself, the processes that are left get the shorter grace
   *   period of commands.
   * - Further calls of `stop` only send SIGTERM once more, and resolve at the same time as the first call.
   */
  stop(): Promise<void> {
    if (this.#stopping !== undefined) this.forward(Signal.TERM);
    this.#ending ??= "stop";
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  /** Records that the whole session was killed while it was frozen. `stop` must still be called. */
  killedFrozen(): void {
    this.#ending ??= "kill_frozen";
  }

  async #stop(): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    const graceMs = this.#running ? this.graceMs : TERM_GRACE_MS;
    const outcome = await endProcesses(child.tree, { signal: Signal.TERM, graceMs });
    if (outcome !== "in_time")
      this.#parts.log.warn("workload_killed", { pid: child.pid, stop_grace_ms: graceMs, outcome });
    if (outcome === "left") {
      this.#endDescription = "the workload hangs in the kernel: SIGKILL had no effect";
      this.#status.resolve(KILLED_STATUS);
    } else await this.#status.promise;
    await this.#parts.output?.finish(this.#ended);
    child.release();
  }

  #onEnd(child: ChildProcess, end: ProcessEnd): void {
    this.#running = false;
    const { code: status, signal, coreDumped } = end;
    const accounts = child.accounts();
    const { oomKilled, usage } = accounts;
    this.#ended = { ...end, ...accounts };
    this.#endDescription = describeEnd(end, oomKilled, this.#ending);
    this.#parts.log.info("workload_ended", {
      pid: child.pid,
      status,
      signal: signal === 0 ? undefined : signal,
      oom_killed: oomKilled,
      core_dumped: coreDumped,
      cpu_scope: usage?.cpuScope,
      cpu_user_us: usage?.cpuUserUs,
      cpu_system_us: usage?.cpuSystemUs,
      peak_memory_scope: usage?.peakMemory?.scope,
      peak_memory_bytes: usage?.peakMemory?.bytes,
    });
    this.#status.resolve(status);
  }
}

/** Exit code of the agent if the workload could not be started, as in shells and container runtimes. */
export function startFailureStatus(error: AgentError): number {
  return error.reason === "EXEC_NOT_FOUND" ? 127 : 126;
}
