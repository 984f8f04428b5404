import type { Attachment, KeptPosition } from "./keep.ts";
import { type KeptParts, KeptWire } from "./kept-wire.ts";
import { ExecProcess } from "./process.ts";

/** For the agent to take what has been written before a call detaches. It does, unless the command reads nothing for long. */
const INPUT_TAKEN_MS = 1_000;

/**
 * A command that outlives its connection (ExecStart.keep), or an attachment to one. What is written to `stdin` is held until
 * the agent has taken it. `cancel()`, an aborted signal and a lost connection detach from the command, which goes on.
 */
export class KeptProcess extends ExecProcess {
  /** What the call has taken up. Rejects with GuestError. */
  readonly attached: Promise<Attachment>;
  readonly #wire: KeptWire;

  /** Throws GuestError where the channel is closed or the options are none. */
  constructor(parts: KeptParts, hasStdin: boolean) {
    const wire = new KeptWire(parts);
    super(wire, hasStdin);
    this.#wire = wire;
    this.attached = this.answered.then((first) => {
      const { pid, execId, stdinOffset, stdinClosed, terminal } = first;
      return { pid, execId, stdinOffset, stdinClosed, terminal };
    });
    this.attached.catch(() => undefined);
  }

  /** Where this call is: for an `attach` that goes on here. Everything is 0 before it is attached. */
  get position(): KeptPosition {
    return this.#wire.position();
  }

  /**
   * Leaves the command to itself, once the agent has taken what was written or a second has passed. Resolves with where to go
   * on, `wait()` then rejects with CANCELLED. Rejects with GuestError when the command was never reached.
   */
  async detach(): Promise<KeptPosition> {
    await this.attached;
    await this.#wire.inputTaken(INPUT_TAKEN_MS);
    const { position } = this;
    this.cancel();
    return position;
  }

  /**
   * With `acknowledge: "told"`: the agent need not hold output up to there any more. An offset below an earlier one changes
   * nothing. Throws GuestError for one past what has come.
   */
  acknowledge(offsets: { readonly stdoutOffset?: bigint; readonly stderrOffset?: bigint }): void {
    this.#wire.acknowledge({ stdoutOffset: 0n, stderrOffset: 0n, ...offsets });
  }

  /** Frees the name and the buffer of the command, which has ended. Rejects with GuestError. */
  forget(): Promise<void> {
    return this.#wire.forget();
  }
}
