import {
  type ActivityClock,
  type AgentError,
  type ByteSource,
  type ChildProcess,
  type Clock,
  exitCode,
  type ProcessEnd,
} from "../domain/index.ts";
import { type Ending, endProcesses, HANG_UP, TERMINATE } from "../session/index.ts";
import type { ExecInput } from "./frames.ts";

/** Longest delay of a timer: 24.8 days. A longer timeout counts as none. */
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
  /** Called once, when the agent begins to end the command. */
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
  /** The first ending that began; later ones are ignored. */
  #ending: Promise<unknown> | undefined;
  #ended = false;

  constructor(parts: SessionParts) {
    this.#parts = parts;
  }

  /**
   * Resolves once the exit has been handed to the output, after every byte that the command wrote. Rejects when the
   * client is gone or broke the frame order; by then nothing of the command's session is alive.
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
      // A lost client ends the input too, but its reason comes with the signal.
      if (!signal.aborted) this.#detach(error as AgentError);
    });
  }

  #detach(reason: AgentError): void {
    if (this.#detached !== undefined) return;
    this.#detached = reason;
    this.#endBy("session", HANG_UP);
  }

  #endBy(whom: "tree" | "session", ending: Ending): void {
    // Background processes of a command that ended by itself live on.
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

/** How a command ended (message ExecExit). */
export interface ExecResult {
  /** 128 + signal when a signal ended it. */
  readonly code: number;
  /** 0 when it exited by itself. */
  readonly signal: number;
  readonly coreDumped: boolean;
  readonly timedOut: boolean;
  readonly oomKilled: boolean;
  readonly outputComplete: boolean;
  readonly durationMs: number;
}

/** Name of an output stream. A terminal has stdout only. */
export type OutputStream = "stdout" | "stderr";

/** Where an exec's frames go, in the order of the calls. */
export interface ExecOutput {
  started(pid: number): void;
  /** `release` is called once the bytes are no longer needed; until then the command is held back. */
  output(stream: OutputStream, bytes: Uint8Array, release: () => void): void;
  exit(result: ExecResult): void;
}

/** Input that may wait for the command; beyond it no more frames are read. */
const STDIN_QUEUE_BYTES = 256 * 1024;
/** Counted for each waiting frame on top of its bytes, so that single key strokes do not fill the memory. */
const FRAME_OVERHEAD_BYTES = 256;

/**
 * Passes the client's frames to the command until the client's side ends. A command that does not read its input stops
 * the client once STDIN_QUEUE_BYTES wait; until then later frames (signals, sizes) overtake the waiting input.
 */
export async function pumpInput(
  child: ChildProcess,
  frames: AsyncIterable<ExecInput>,
  activity: ActivityClock,
): Promise<void> {
  let queuedBytes = 0;
  for await (const frame of frames) {
    activity.touch();
    switch (frame.kind) {
      case "stdin": {
        const heldBytes = frame.bytes.length + FRAME_OVERHEAD_BYTES;
        queuedBytes += heldBytes;
        const written = child.stdin?.write(frame.bytes).then(() => {
          queuedBytes -= heldBytes;
          frame.release?.();
        });
        if (queuedBytes > STDIN_QUEUE_BYTES) await written;
        break;
      }
      case "stdin_close":
        child.stdin?.end();
        break;
      case "resize":
        // A zero dimension means "unknown" (RFC 4254, 6.7): a client without a window sends it.
        if (frame.cols > 0 && frame.rows > 0) child.resize(frame.cols, frame.rows);
        break;
      case "signal":
        child.signalGroup(frame.number);
    }
  }
  child.stdin?.end();
}
