import {
  type ActivityClock,
  AgentError,
  type ChildProcess,
  type Clock,
  EXEC_LIMIT,
  type StdioPlan,
} from "../domain/index.ts";
import type { CommandStarter } from "../session/index.ts";
import { checkExecRequest, type ExecInput, type ExecRequest } from "./frames.ts";
import { type ExecOutput, ExecSession, type SessionParts } from "./session.ts";

const DEFAULT_COLS = 80;
const DEFAULT_ROWS = 24;

/** What the exec capability needs. */
export interface ExecParts {
  readonly starter: CommandStarter;
  readonly activity: ActivityClock;
  readonly clock: Clock;
}

/** The part of an exec's request that its running command still needs. */
interface Attended extends Pick<SessionParts, "timeoutMs" | "input" | "output" | "signal"> {
  readonly inTerminal: boolean;
}

/** Runs commands in the workload's session. */
export class Exec {
  readonly #parts: ExecParts;
  readonly #sessions = new Set<ExecSession>();
  readonly #running = new Set<Promise<void>>();
  #closed: AgentError | undefined;

  constructor(parts: ExecParts) {
    this.#parts = parts;
  }

  /**
   * Runs one command to its end. Resolves after the exit has been handed to `output`.
   *
   * @param input the client's frames after the first; iterated until the command ends
   * @param signal aborted when the client is gone; the command is then ended too
   * @throws AgentError when the command cannot be started, when a frame is refused, or with the signal's reason
   */
  run(request: ExecRequest, input: AsyncIterable<ExecInput>, output: ExecOutput, signal: AbortSignal): Promise<void> {
    const { timeoutMs, terminal } = request;
    // Neither this nor #attend may keep the request (up to 4 MiB of arguments) in memory while the command runs.
    const run = this.#attend(this.#start(request, signal), {
      timeoutMs,
      inTerminal: terminal !== undefined,
      input,
      output,
      signal,
    });
    this.#running.add(run);
    return run.finally(() => this.#running.delete(run));
  }

  /** Refuses new execs from now on. */
  close(reason: AgentError): void {
    this.#closed ??= reason;
  }

  /** Ends every exec with its whole tree; resolves when all of them have reported their exits. */
  async terminateAll(): Promise<void> {
    for (const session of this.#sessions) session.terminate();
    await Promise.allSettled(this.#running);
  }

  async #start(request: ExecRequest, signal: AbortSignal): Promise<ChildProcess> {
    checkExecRequest(request);
    if (this.#closed !== undefined) throw this.#closed;
    if (this.#running.size >= EXEC_LIMIT) {
      throw new AgentError(
        "RESOURCE_EXHAUSTED",
        "TOO_MANY_EXECS",
        `${EXEC_LIMIT} execs run already; wait for one to end or cancel one`,
        { limit: String(EXEC_LIMIT) },
      );
    }
    this.#parts.activity.touch();
    const command = { ...request, term: request.terminal?.term };
    return this.#parts.starter.startCommand(command, stdioOf(request), signal);
  }

  async #attend(starting: Promise<ChildProcess>, attended: Attended): Promise<void> {
    const { activity, clock } = this.#parts;
    const child = await starting;
    // In a terminal only typing counts as activity: a forgotten shell must not keep the sandbox awake.
    const attachment = attended.inTerminal ? undefined : activity.attach();
    let endedByAgent = false;
    const onEnding = (): void => {
      endedByAgent = true;
      attachment?.cut();
    };
    const session = new ExecSession({ ...attended, child, activity, clock, onEnding });
    this.#sessions.add(session);
    if (this.#closed !== undefined) session.terminate();
    try {
      await session.run();
    } finally {
      this.#sessions.delete(session);
      attachment?.end();
      // The agent's own ending of a command is no activity: after a restore it ends those whose clients are long gone.
      if (!endedByAgent) activity.touch();
    }
  }
}

function stdioOf(request: ExecRequest): StdioPlan {
  if (request.terminal === undefined) return { kind: "pipes", stdin: request.stdin };
  const { cols, rows } = request.terminal;
  return {
    kind: "terminal",
    cols: cols === 0 ? DEFAULT_COLS : cols,
    rows: rows === 0 ? DEFAULT_ROWS : rows,
  };
}
