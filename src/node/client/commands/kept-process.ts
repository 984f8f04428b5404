import { deferred } from "../deferred.ts";
import type { Attachment, KeptPosition } from "./keep.ts";
import { KeptCall } from "./kept-call.ts";
import type { KeptParts } from "./kept-state.ts";
import { GuestProcess, type ProcessParts } from "./process.ts";

/**
 * `detach()` waits until the agent has received the written input. But if the agent receives nothing for this long,
 * `detach()` stops waiting, because a command may never read its input.
 */
const INPUT_QUIET_MS = 1_000;
/** Longest wait of `detach()`, even if the agent still receives input: the command may read slowly. */
const INPUT_TAKEN_MS = 10_000;
/** How long `Symbol.asyncDispose` waits for the agent to answer the start of the command. */
const ANSWER_MS = 10_000;

/** The workload's output, read-only. `wait()` resolves with the workload's exit. */
export type WorkloadOutput<Output extends string | Buffer = string> = Pick<
  KeptProcess<Output>,
  "stdout" | "stderr" | "attached" | "position" | "detach" | "wait"
>;

/**
 * A command that outlives its connection (ExecStart.keep). This object has either started the command or attached to
 * it. It keeps what was written to `stdin` until the agent has received it. `detach()`, an aborted signal and a lost
 * connection only detach from the command, which continues to run.
 */
export class KeptProcess<Output extends string | Buffer = string> extends GuestProcess<Output> {
  /**
   * The command that the call is attached to. Rejects with GuestError if it cannot be attached; a rejection that nobody
   * awaits is ignored.
   */
  readonly attached: Promise<Attachment>;
  readonly #wire: KeptCall;

  /** Throws GuestError for a closed channel or invalid options. */
  constructor(parts: KeptParts, connected: ProcessParts) {
    const wire = new KeptCall(parts);
    super(wire, connected);
    this.#wire = wire;
    this.attached = this.answered.then((first) => {
      const { pid, execId, stdinOffset, stdinClosed, terminal, stdoutEnd, stderrEnd } = first;
      const offsets = { stdinOffset: Number(stdinOffset), stdoutEnd: Number(stdoutEnd), stderrEnd: Number(stderrEnd) };
      return { pid, execId, stdinClosed, terminal, ...offsets };
    });
    this.attached.catch(() => undefined);
  }

  /**
   * This call's position in the command's streams, as options for an `attach` that continues at this position. All
   * offsets are 0 before the call is attached.
   */
  get position(): KeptPosition {
    return this.#wire.position;
  }

  /**
   * Detaches from the command. First waits until the agent has received all written input. Stops waiting after ten
   * seconds, or when the agent has received nothing for one second. Resolves with the position to continue from;
   * `wait()` then rejects with DETACHED. Rejects with GuestError if the call was never attached.
   */
  async detach(): Promise<KeptPosition> {
    await this.attached;
    await this.#wire.input.allTaken(INPUT_QUIET_MS, INPUT_TAKEN_MS);
    const { position } = this;
    this.#wire.cancel();
    return position;
  }

  /**
   * Ends the command as if it were not kept: the agent sends SIGHUP, and SIGKILL 5 s later. The agent then forgets the
   * command.
   *
   * - Normally `wait()` rejects with HUNG_UP as soon as the command has ended.
   * - If the connection is lost, the call first reconnects, as `resume` says. If the agent cannot be reached, `wait()`
   *   rejects with CANCEL_UNCONFIRMED: the command may still run.
   * - If the agent has not answered the start yet, `wait()` rejects at once, and the command is ended after the answer.
   *
   * Does nothing if the call is over: after `detach()`, a failed start, a takeover, or a lost connection without
   * `resume`. To end the command then, call `commands.end` with its name.
   */
  override cancel(): void {
    this.#wire.hangUp();
  }

  /** Detaches from the command, which continues to run. Waits at most 10 s for the agent's answer to the start. */
  override async [Symbol.asyncDispose](): Promise<void> {
    const { promise, resolve } = deferred<undefined>();
    const timer = setTimeout(resolve, ANSWER_MS, undefined);
    await Promise.race([this.detach().catch(() => undefined), promise]);
    clearTimeout(timer);
    this.#wire.cancel();
  }

  /** Called when the caller leaves a loop over an output. Detaches from the command without ending it. */
  protected override onLeft(): void {
    this.detach().catch(() => undefined);
  }

  /**
   * Allows the agent to drop the output before these offsets. Only needed with `acknowledge: "manual"`. Throws
   * GuestError for an offset beyond the received bytes.
   */
  acknowledge(offsets: { readonly stdoutOffset?: number; readonly stderrOffset?: number }): void {
    this.#wire.acknowledge({ stdoutOffset: 0, stderrOffset: 0, ...offsets });
  }

  /**
   * Frees the name and the buffer of the command, which must have ended. First waits for the agent's answer to the
   * start. Rejects with GuestError, and frees nothing, if the call failed, was detached or was never attached.
   */
  async forget(): Promise<void> {
    await this.attached;
    await this.#wire.forget();
  }
}
