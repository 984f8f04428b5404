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
import { type AgentsEnding, endInWords } from "./end-in-words.ts";

/** 128 + SIGKILL. */
const KILLED_STATUS = 137;

/** What keeps the workload's output. */
interface OutputKeeper {
  /** Reads from now on what the workload, which has just been started, writes. */
  begin(child: ChildProcess): void;
  /**
   * Called once the workload and its descendants have ended, before the child's release: reads the rest of their
   * output.
   *
   * @param end how the workload has ended; undefined: it hangs in the kernel
   */
  finish(end: (ProcessEnd & CommandAccounts) | undefined): Promise<void>;
}

/** What the workload needs. */
export interface WorkloadParts {
  readonly starter: CommandStarter;
  readonly spec: ProcessSpec;
  readonly log: Log;
  /** Undefined: the workload writes to the agent's own streams. */
  readonly output: OutputKeeper | undefined;
}

/** The user's own process, around which the agent was started, and all its descendants. */
export class Workload {
  readonly #parts: WorkloadParts;
  readonly #startAbort = new AbortController();
  /** The exit code that the agent leaves with. */
  readonly #status = Promise.withResolvers<number>();
  #child: ChildProcess | undefined;
  #stopping: Promise<void> | undefined;
  #ending: AgentsEnding;
  #running = false;
  #ended: (ProcessEnd & CommandAccounts) | undefined;
  /** How it has ended, for the last line of the log. */
  #end = "the workload had not ended";

  constructor(parts: WorkloadParts) {
    this.#parts = parts;
  }

  /** Whether the spec names a command at all. */
  get configured(): boolean {
    return this.#parts.spec.args.length > 0;
  }

  /** Whether it has been started and has not ended. */
  get running(): boolean {
    return this.#running;
  }

  /** How it has ended, in words. */
  get endInWords(): string {
    return this.#end;
  }

  /** Time that its whole tree gets between SIGTERM and SIGKILL, in milliseconds. */
  get graceMs(): number {
    return this.#parts.spec.stopGraceMs;
  }

  /**
   * Starts the workload on the agent's own standard streams, or with its output kept. Resolves when it runs, or when
   * its start was given up. `ended` is the exit code for the agent to leave with: the workload's, or 128 + n when
   * signal n ended it. Call `stop` after any end, as descendants may be left.
   *
   * @throws AgentError when it cannot be started
   */
  async start(): Promise<{ readonly ended: Promise<number> }> {
    const { starter, spec, log, output } = this.#parts;
    const { signal } = this.#startAbort;
    try {
      signal.throwIfAborted();
      // Does not wait for an aborted start: a child that hangs in the kernel survives even SIGKILL.
      const child = await unlessAborted(starter.startWorkload(spec.args, output !== undefined, signal), signal);
      output?.begin(child);
      this.#child = child;
      this.#running = true;
      log.info("workload_started", { pid: child.pid });
      void child.ended.then((end) => this.#onEnd(child, end));
    } catch (error) {
      if (!signal.aborted) throw error;
      log.warn("workload_start_given_up", { signal: Number(signal.reason) });
      this.#end = "the workload was not started: a signal asked the agent to end first";
      this.#status.resolve(128 + Number(signal.reason));
    }
    return { ended: this.#status.promise };
  }

  /** Gives up a start, even one that hangs, because of a signal to leave. Does nothing once the workload runs. */
  abandonStart(signal: number): void {
    this.#startAbort.abort(signal);
  }

  /** Forwards a signal to the workload. Does nothing while it does not run. */
  forward(signal: number): void {
    if (this.#running) this.#child?.signal(signal);
  }

  /**
   * Ends the workload with its whole tree: SIGTERM, its grace, SIGKILL. If it has ended by itself, what it left gets
   * the shorter grace of other commands. Resolves when the whole tree has ended. A repeated call only repeats SIGTERM.
   */
  stop(): Promise<void> {
    if (this.#stopping !== undefined) this.forward(Signal.TERM);
    this.#ending ??= "stop";
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  /** Records that the whole session was killed while it was frozen; `stop` is still to be called. */
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
      this.#end = "the workload hangs in the kernel: not even SIGKILL has ended it";
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
    this.#end = endInWords(end, oomKilled, this.#ending);
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

/** Exit code of the agent when the workload could not be started, as with shells and container runtimes. */
export function startFailureStatus(error: AgentError): number {
  return error.reason === "EXEC_NOT_FOUND" ? 127 : 126;
}
