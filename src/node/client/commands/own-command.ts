import { ExecSessions } from "../../../shared/gen/svc/guest/v1alpha1/exec_sessions_pb.ts";
import { failure, type GuestError } from "../errors/errors.ts";
import type { RedialledChannel } from "../grpc/link/redialled.ts";
import type { ExecCall } from "./wire.ts";

/** Parameters of EndExec that terminate a command: the signal SIGHUP, and the grace period before SIGKILL. */
const HANG_UP = { signal: 1, graceMs: 5_000n, forget: true };
/** If the caller cancels a start, the agent gets this time to answer the start, and then to end the started command. */
const ANSWER_MS = 10_000;

/**
 * The kept command that a call has started or attached to. Ends or forgets only this command: EndExec without an
 * exec_id would end any command that has the name now, even another client's.
 */
export class OwnCommand {
  /** The command's exec_id; empty before the agent's first answer. */
  execId = "";
  readonly #channel: RedialledChannel;
  readonly #name: string;

  constructor(channel: RedialledChannel, name: string) {
    this.#channel = channel;
    this.#name = name;
  }

  /**
   * Ends the command: the agent sends SIGHUP, and SIGKILL 5 s later. Afterwards the command's name is free. Rejects
   * with GuestError.
   */
  async hangUp(): Promise<void> {
    await this.#end(HANG_UP);
  }

  /** Frees the name and the buffer of the command, which must have ended. Rejects with GuestError. */
  async forget(requestTimeoutMs?: number): Promise<void> {
    await this.#end({}, requestTimeoutMs);
  }

  /**
   * Ends the command (SIGHUP) after the caller has cancelled its start. First waits for the agent's answer, because
   * only the answer says whether a command was started, and which `exec_id` it has.
   */
  hangUpOnceAnswered(call: ExecCall): void {
    const timer = setTimeout(() => call.cancel(), ANSWER_MS);
    const over = (): void => {
      clearTimeout(timer);
      call.cancel();
    };
    call.open({
      frame: (frame) => {
        if (frame.case !== "started") return;
        this.execId = frame.value.execId;
        // End the command first and the call last, because a closed client keeps its connection only until its last
        // call has ended. An agent that is too old to keep commands ends the command when the call ends.
        if (frame.value.kept) this.#end(HANG_UP, ANSWER_MS).then(over, over);
        else over();
      },
      ended: over,
      failed: over,
      unread: () => 0,
    });
  }

  async #end(how: Partial<typeof HANG_UP>, requestTimeoutMs?: number): Promise<void> {
    const { execId } = this;
    if (execId === "") return;
    const request = { name: this.#name, execId, ...how };
    await this.#channel.use((channel) => channel.unary(ExecSessions.method.endExec, request, { requestTimeoutMs }));
  }
}

/** Whether the agent's error says that the command has ended and that the agent has forgotten it. */
export function isGone({ reason }: GuestError): boolean {
  return reason === "EXEC_UNKNOWN";
}

/** Creates the error that the caller of a command gets after cancelling the command. */
export function hungUp(): GuestError {
  return failure("CANCELLED", "HUNG_UP", "the command was cancelled, so the agent sends SIGHUP to it");
}

/** Creates the error for a cancelled command that may still be running, because the agent has not confirmed its end. */
export function cancelUnconfirmed(name: string, cause: GuestError): GuestError {
  const message = `the cancelled command may still be running: ${cause.message}; call commands.end("${name}")`;
  return failure("CANCELLED", "CANCEL_UNCONFIRMED", message, cause);
}
