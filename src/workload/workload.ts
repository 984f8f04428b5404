import {
  type AgentError,
  type ChildProcess,
  exitCode,
  type Log,
  type ProcessEnd,
  type ProcessSpec,
  TERM_GRACE_MS,
  unlessAborted,
} from "../domain/index.ts";
import { type CommandStarter, endProcesses } from "../session/index.ts";

const SIGTERM = 15;
/** 128 + SIGKILL. */
const KILLED_STATUS = 137;

/** What the workload needs. */
export interface WorkloadParts {
  readonly starter: CommandStarter;
  readonly spec: ProcessSpec;
  readonly log: Log;
}

/** The user's own process, which the agent was injected around, and all that descends from it. */
export class Workload {
  readonly #parts: WorkloadParts;
  /** Gives its start up. */
  readonly #startAbort = new AbortController();
  /** Exit code to mirror. */
  readonly #status = Promise.withResolvers<number>();
  #child: ChildProcess | undefined;
  #stopping: Promise<void> | undefined;
  #running = false;

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

  /**
   * Starts the workload on the agent's own standard streams. Resolves when it runs, or when its start was given up, with a
   * promise of the exit code to mirror: the code, or 128 + n when signal n ended it. Then `stop` has to be called, whatever
   * the end: there may be descendants.
   *
   * @throws AgentError when it cannot be started
   */
  async start(): Promise<{ readonly ended: Promise<number> }> {
    const { starter, spec, log } = this.#parts;
    const { signal } = this.#startAbort;
    try {
      signal.throwIfAborted();
      // Raced too: a child that hangs in the kernel may not even be killed.
      const child = await unlessAborted(starter.startWorkload(spec.args, signal), signal);
      this.#child = child;
      this.#running = true;
      log.info("workload_started", { pid: child.pid });
      void child.ended.then((end) => this.#onEnd(child, end));
    } catch (error) {
      if (!signal.aborted) throw error;
      log.warn("workload_start_given_up", { signal: Number(signal.reason) });
      this.#status.resolve(128 + Number(signal.reason));
    }
    return { ended: this.#status.promise };
  }

  /** Gives the start up, however it hangs, because of a signal to leave. Nothing once the workload runs. */
  abandonStart(signal: number): void {
    this.#startAbort.abort(signal);
  }

  /** Sends a signal to the workload, as its parent would have got it. Nothing while it does not run. */
  forward(signal: number): void {
    if (this.#running) this.#child?.signal(signal);
  }

  /**
   * Ends the workload with its whole tree: SIGTERM, its grace, SIGKILL. Where it has ended by itself, what it left gets the
   * shorter grace of all other commands. Resolves when nobody of it is alive. A repeated call only repeats SIGTERM.
   */
  stop(): Promise<void> {
    if (this.#stopping !== undefined) this.forward(SIGTERM);
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  async #stop(): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    const graceMs = this.#running ? this.#parts.spec.stopGraceMs : TERM_GRACE_MS;
    const outcome = await endProcesses(child.tree, { signal: SIGTERM, graceMs });
    if (outcome !== "in_time")
      this.#parts.log.warn("workload_killed", { pid: child.pid, stopGraceMs: graceMs, outcome });
    if (outcome === "left") this.#status.resolve(KILLED_STATUS);
    else await this.#status.promise;
    child.release();
  }

  #onEnd(child: ChildProcess, end: ProcessEnd): void {
    this.#running = false;
    const status = exitCode(end);
    const signal = end.kind === "signaled" ? end.signal : undefined;
    this.#parts.log.info("workload_ended", { pid: child.pid, status, signal });
    this.#status.resolve(status);
  }
}

/** Exit code of the agent when the workload could not be started, as shells and container runtimes have it. */
export function startFailureStatus(error: AgentError): number {
  return error.reason === "EXEC_NOT_FOUND" ? 127 : 126;
}
