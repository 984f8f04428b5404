import type { Attachment, KeptPosition } from "./keep.ts";
import { KeptCall, type KeptParts } from "./kept-call.ts";
import { ExecProcess } from "./process.ts";

/** How long a detaching call waits for the agent to take its input: longer only if the command reads nothing. */
const INPUT_TAKEN_MS = 1_000;

/** The workload's output, for reading alone. `wait()` resolves with how the workload has ended. */
export type WorkloadOutput = Pick<KeptProcess, "stdout" | "stderr" | "attached" | "position" | "detach" | "wait">;

/**
 * A command that outlives its connection (ExecStart.keep), or an attachment to one. Holds input of `stdin` until the
 * agent has taken it. `detach()`, an aborted signal and a lost connection leave the command, which runs on.
 */
export class KeptProcess extends ExecProcess {
  /** The command that the call is attached to. Rejects with GuestError. */
  readonly attached: Promise<Attachment>;
  readonly #wire: KeptCall;

  /** Throws GuestError for a closed channel or invalid options. */
  constructor(parts: KeptParts, hasStdin: boolean) {
    const wire = new KeptCall(parts);
    super(wire, hasStdin);
    this.#wire = wire;
    this.attached = this.answered.then((first) => {
      const { pid, execId, stdinOffset, stdinClosed, terminal, stdoutEnd, stderrEnd } = first;
      const offsets = { stdinOffset: Number(stdinOffset), stdoutEnd: Number(stdoutEnd), stderrEnd: Number(stderrEnd) };
      return { pid, execId, stdinClosed, terminal, ...offsets };
    });
    this.attached.catch(() => undefined);
  }

  /** This call's position, for an `attach` that continues here. All 0 before it is attached. */
  get position(): KeptPosition {
    return this.#wire.position;
  }

  /**
   * Detaches from the command, once the agent has taken the written input or a second has passed. Resolves with the
   * position to continue from; `wait()` then rejects with CANCELLED. Rejects with GuestError when the command was never
   * reached.
   */
  async detach(): Promise<KeptPosition> {
    await this.attached;
    await this.#wire.input.allTaken(INPUT_TAKEN_MS);
    const { position } = this;
    super.cancel();
    return position;
  }

  /**
   * Ends the command as if it were not kept, and forgets it: SIGHUP, 5 s, SIGKILL. `wait()` rejects at once. A start
   * that is still under way is ended once the agent has answered. Does nothing once the call is over: after `detach()`,
   * a refused start, a takeover or a lost connection without `resume`, `endExec` ends a command by its name.
   */
  override cancel(): void {
    this.#wire.hangUp();
  }

  /** With `acknowledge: "manual"`: the agent may drop output up to here. Throws GuestError past the received bytes. */
  acknowledge(offsets: { readonly stdoutOffset?: number; readonly stderrOffset?: number }): void {
    this.#wire.acknowledge({ stdoutOffset: 0, stderrOffset: 0, ...offsets });
  }

  /**
   * Frees the name and the buffer of the command, which has ended. Waits for a start that is still under way. Rejects
   * with GuestError, and forgets nothing, where this call failed, was detached or never had the command.
   */
  async forget(): Promise<void> {
    await this.attached;
    await this.#wire.forget();
  }
}
