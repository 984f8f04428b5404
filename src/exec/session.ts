import {
  type ActivityClock,
  type AgentError,
  type ByteSource,
  type ChildProcess,
  type Clock,
  type ExecInput,
  exitCode,
  type ProcessEnd,
} from "../domain/index.ts";
import { endProcesses, type Ending, HANG_UP, TERMINATE } from "../session/index.ts";
import { pumpInput } from "./input-pump.ts";
import type { ExecOutput, ExecResult, OutputStream } from "./output.ts";

/** Longest delay that a timer takes: 24.8 days. A longer timeout is as good as none. */
const TIMER_LIMIT_MS = 2 ** 31 - 1;

/** What a running command is connected to. */
export interface SessionParts {
  /** 0: no limit. */
  readonly timeoutMs: number;
  readonly child: ChildProcess;
  readonly input: AsyncIterable<ExecInput>;
  readonly output: ExecOutput;
  readonly activity: ActivityClock;
  readonly clock: Clock;
  /** Told once when the agent begins to end the command. */
  readonly onEnding: () => void;
  /** Aborted when the client is gone. */
  readonly signal: AbortSignal;
}

/** One running command, from its start to its exit frame. */
export class ExecSession {
  readonly #parts: SessionParts;
  #timedOut = false;
  /** Why the client no longer gets frames; undefined while it does. */
  #detached: AgentError | undefined;
  /** The first way of ending the command that was chosen; it runs to its end. */
  #ending: Promise<unknown> | undefined;
  #ended = false;

  constructor(parts: SessionParts) {
    this.#parts = parts;
  }

  /**
   * Resolves once the exit has been handed to the output, which has then seen every byte that the command left behind.
   * Rejects, with nothing of the command's session left alive, when the client is gone or broke the frame order.
   */
  async run(): Promise<void> {
    const { child, output, signal, timeoutMs, clock } = this.#parts;
    const startedMs = clock.monotonicMs();
    output.started(child.pid);
    this.#receive("stdout", child.stdout);
    this.#receive("stderr", child.stderr);
    const onAbort = (): void => this.#detach(signal.reason as AgentError);
    signal.addEventListener("abort", onAbort);
    if (signal.aborted) onAbort();
    const timer = this.#startTimeout(timeoutMs);
    this.#pump();

    const end = await child.ended;
    this.#ended = true;
    clearTimeout(timer);
    const durationMs = Math.round(clock.monotonicMs() - startedMs);
    await this.#ending;
    const outputComplete = await this.#drain();
    // Read before the release, which gives the command's cgroup back.
    const oomKilled = child.oomKilled();
    child.release();
    signal.removeEventListener("abort", onAbort);
    if (this.#detached !== undefined) throw this.#detached;
    output.exit(this.#result(end, { oomKilled, outputComplete, durationMs }));
  }

  /** Ends the command because the agent leaves; its exit is still reported. */
  terminate(): void {
    this.#endBy("tree", TERMINATE);
  }

  #receive(stream: OutputStream, source: ByteSource | undefined): void {
    source?.start({
      chunk: (bytes, release) => {
        if (this.#detached === undefined) this.#parts.output.output(stream, bytes, release);
        else release();
      },
      end: () => {},
    });
  }

  #startTimeout(timeoutMs: number): NodeJS.Timeout | undefined {
    if (timeoutMs === 0 || timeoutMs > TIMER_LIMIT_MS) return undefined;
    return setTimeout(() => {
      this.#timedOut = true;
      this.#endBy("tree", TERMINATE);
    }, timeoutMs);
  }

  #pump(): void {
    const { child, input, activity, signal } = this.#parts;
    pumpInput(child, input, activity).catch((error: unknown) => {
      // A lost client ends the input too; the signal tells that one, with its reason.
      if (!signal.aborted) this.#detach(error as AgentError);
    });
  }

  #detach(reason: AgentError): void {
    if (this.#detached !== undefined) return;
    this.#detached = reason;
    this.#endBy("session", HANG_UP);
  }

  #endBy(whom: "tree" | "session", ending: Ending): void {
    // What a command that ended by itself left in the background lives on.
    if (this.#ended || this.#ending !== undefined) return;
    this.#parts.onEnding();
    this.#ending = endProcesses(this.#parts.child[whom], ending);
  }

  async #drain(): Promise<boolean> {
    const sources = [this.#parts.child.stdout, this.#parts.child.stderr].filter((source) => source !== undefined);
    const ends = await Promise.all(sources.map((source) => source.drain()));
    return ends.every(Boolean);
  }

  #result(end: ProcessEnd, measured: Pick<ExecResult, "oomKilled" | "outputComplete" | "durationMs">): ExecResult {
    return {
      code: exitCode(end),
      signal: end.kind === "signaled" ? end.signal : 0,
      coreDumped: end.kind === "signaled" && end.coreDumped,
      timedOut: this.#timedOut,
      ...measured,
    };
  }
}
