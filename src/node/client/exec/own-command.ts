import { ExecSessions } from "../../../shared/gen/svc/guest/v1alpha1/exec_sessions_pb.ts";
import type { RedialledChannel } from "../link/redialled.ts";
import type { ExecCall } from "./wire.ts";

/** SIGHUP, and the time that the agent gives a command that it hangs up on. */
const HANG_UP = { signal: 1, graceMs: 5_000n, forget: true };
/** Time for the agent to answer a start that was given up, and to end the command that it has started. */
const ANSWER_MS = 10_000;

/**
 * The kept command that a call has started or attached to. Ends or forgets no other: EndExec without an exec_id means
 * whichever command has the name now, which may be that of another client.
 */
export class OwnCommand {
  /** Its identity, from the agent's first answer; empty before it. */
  execId = "";
  readonly #channel: RedialledChannel;
  readonly #name: string;

  constructor(channel: RedialledChannel, name: string) {
    this.#channel = channel;
    this.#name = name;
  }

  /** Ends the command: SIGHUP, 5 s, SIGKILL; its name is then free. Rejects with GuestError. */
  async hangUp(): Promise<void> {
    await this.#end(HANG_UP);
  }

  /** Frees the name and the buffer of the command, which has ended. Rejects with GuestError. */
  async forget(timeoutMs?: number): Promise<void> {
    await this.#end({}, timeoutMs);
  }

  /** Hangs up on what a call starts that was given up: only the agent's answer says whether it did, and which it is. */
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
        // The call ends last: until then a client that was closed keeps its connection. An agent that keeps no commands
        // ends the command with its call.
        if (frame.value.kept) this.#end(HANG_UP, ANSWER_MS).then(over, over);
        else over();
      },
      ended: over,
      failed: over,
      unread: () => 0,
    });
  }

  async #end(how: Partial<typeof HANG_UP>, timeoutMs?: number): Promise<void> {
    const { execId } = this;
    if (execId === "") return;
    const request = { name: this.#name, execId, ...how };
    await this.#channel.use((channel) => channel.unary(ExecSessions.method.endExec, request, { timeoutMs }));
  }
}
