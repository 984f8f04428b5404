import {
  type AgentError,
  type ChildProcess,
  type CommandStarter,
  exitCode,
  type Log,
  type ProcessEnd,
  type ProcessSpec,
} from "../domain/index.ts";

const SIGTERM = 15;

/** What the workload needs. */
export interface WorkloadParts {
  readonly starter: CommandStarter;
  readonly spec: ProcessSpec;
  readonly log: Log;
}

/** The user's own process, which the agent was injected around. */
export class Workload {
  readonly #parts: WorkloadParts;
  #child: ChildProcess | undefined;
  #stopTimer: NodeJS.Timeout | undefined;

  constructor(parts: WorkloadParts) {
    this.#parts = parts;
  }

  /** Whether the spec names a command at all. */
  get configured(): boolean {
    return this.#parts.spec.args.length > 0;
  }

  /** Whether it has been started and has not ended. */
  get running(): boolean {
    return this.#child !== undefined;
  }

  /**
   * Starts the workload on the agent's own standard streams. Resolves when it runs, with a promise of the exit code to
   * mirror: the code, or 128 + n when signal n ended it.
   *
   * @throws AgentError when it cannot be started
   */
  async start(): Promise<{ readonly ended: Promise<number> }> {
    const { starter, spec, log } = this.#parts;
    const child = await starter.startWorkload(spec.args);
    this.#child = child;
    log.info("workload_started", { pid: child.pid });
    return { ended: child.ended.then((end) => this.#onEnd(child, end)) };
  }

  /** Sends a signal to the workload, as its parent would have got it. Nothing while it does not run. */
  forward(signal: number): void {
    this.#child?.signal(signal);
  }

  /** Asks the workload to end: SIGTERM now, SIGKILL to its whole tree after the grace. Resolves when it has ended. */
  async stop(): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    child.signal(SIGTERM);
    const { stopGraceMs } = this.#parts.spec;
    this.#stopTimer ??= setTimeout(() => {
      this.#parts.log.warn("workload_killed", { pid: child.pid, stopGraceMs });
      void child.killTree();
    }, stopGraceMs);
    await child.ended;
  }

  #onEnd(child: ChildProcess, end: ProcessEnd): number {
    this.#child = undefined;
    clearTimeout(this.#stopTimer);
    child.release();
    const status = exitCode(end);
    const signal = end.kind === "signaled" ? end.signal : undefined;
    this.#parts.log.info("workload_ended", { pid: child.pid, status, signal });
    return status;
  }
}

/** Exit code of the agent when the workload could not be started, as shells and container runtimes have it. */
export function startFailureStatus(error: AgentError): number {
  return error.reason === "EXEC_NOT_FOUND" ? 127 : 126;
}
