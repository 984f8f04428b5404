import type { Incoming, ActivityClock, AgentError, ByteSource } from "../domain/index.ts";
import { HANG_UP, TERMINATE } from "../session/index.ts";
import { type CommandParts, type ExecResult, RunningCommand } from "./command.ts";
import type { CommandInput } from "./frames.ts";
import { InputPump } from "./input-pump.ts";
import type { OutputStream } from "./output-log.ts";

/** Where an exec's frames go, in the order of the calls. */
export interface ExecOutput {
  started(pid: number): void;
  /** `release` is called once the bytes are no longer needed; until then the command is held back. */
  output(stream: OutputStream, bytes: Uint8Array, release: () => void): void;
  exit(result: ExecResult): void;
}

/** What a command is connected to that belongs to its call. */
export interface ExecCallParts extends CommandParts {
  readonly input: Incoming<CommandInput>;
  readonly output: ExecOutput;
  readonly activity: ActivityClock;
  /** Aborted when the client is gone. */
  readonly signal: AbortSignal;
}

/** One running command with its one client, from its start to its exit frame. */
export class ExecCall {
  readonly #parts: ExecCallParts;
  readonly #command: RunningCommand;
  /** Why the client no longer gets frames; undefined while it does. */
  #detached: Error | undefined;

  constructor(parts: ExecCallParts) {
    this.#parts = parts;
    this.#command = new RunningCommand(parts);
  }

  /**
   * Resolves once the exit has been handed to the output, after every byte that the command wrote. Rejects when the
   * client is gone or broke the frame order; by then nothing of the command's session is alive.
   */
  async run(): Promise<void> {
    const { child, output, signal } = this.#parts;
    output.started(child.pid);
    this.#receive("stdout", child.stdout);
    this.#receive("stderr", child.stderr);
    const onAbort = (): void => this.#detach(signal.reason as AgentError);
    signal.addEventListener("abort", onAbort);
    if (signal.aborted) onAbort();
    this.#pump();
    const result = await this.#command.follow();
    signal.removeEventListener("abort", onAbort);
    if (this.#detached !== undefined) throw this.#detached;
    output.exit(result);
  }

  /** Ends the command because the agent leaves; its exit is still reported. */
  terminate(): void {
    this.#command.endBy("tree", TERMINATE);
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

  #pump(): void {
    const { child, input, activity, signal } = this.#parts;
    new InputPump(child, activity).carry(input, (error) => {
      // A lost client also ends the input; the signal reports the loss, with its reason.
      if (!signal.aborted) this.#detach(error);
    });
  }

  #detach(reason: Error): void {
    if (this.#detached !== undefined) return;
    this.#detached = reason;
    this.#command.endBy("session", HANG_UP);
  }
}
