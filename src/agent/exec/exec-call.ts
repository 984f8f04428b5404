import { type Incoming, type ActivityClock, type AgentError, whenAborted } from "../domain/index.ts";
import { HANG_UP } from "../session/index.ts";
import { type CommandParts, type ExecResult, RunningCommand } from "./command.ts";
import type { CommandInput } from "./frames.ts";
import { InputPump } from "./input-pump.ts";
import type { OutputStream } from "./output-log.ts";

/** Sends the frames of a command, in the order of the calls. */
export interface ExecOutput {
  started(pid: number): void;
  /**
   * Sends output of the command. `release` is called when the bytes were sent. Until then the agent does not read this
   * stream further, so the command may block when it writes.
   */
  output(stream: OutputStream, bytes: Uint8Array, release: () => void): void;
  exit(result: ExecResult): void;
}

/** Dependencies of the call that runs a command that is not kept. */
export interface ExecCallParts extends Pick<CommandParts, "child" | "timeoutMs" | "sessionClock"> {
  readonly input: Incoming<CommandInput>;
  readonly output: ExecOutput;
  readonly activity: ActivityClock;
  readonly inTerminal: boolean;
  /** This signal is aborted when the client disconnects. */
  readonly signal: AbortSignal;
}

/**
 * Runs a command that is not kept. Resolves when all output and then the exit were passed to `output`. If the client
 * disconnects or violates the frame order, ends all processes of the command's session, and then rejects with the
 * reason.
 *
 * @param began receives the running command, so that the caller can end it
 */
export async function runCall(parts: ExecCallParts, began: (command: RunningCommand) => void): Promise<void> {
  const { child, input, output, activity, inTerminal, signal } = parts;
  // In a terminal, only typing counts as activity. Otherwise a forgotten shell would keep the sandbox awake.
  const attachment = inTerminal ? undefined : activity.attach();
  let endedByAgent = false;
  const onEnding = (): void => {
    endedByAgent = true;
    attachment?.cut();
  };
  const command = new RunningCommand({ ...parts, onEnding });
  /** Why the client gets no more frames; undefined while frames are sent. */
  let detached: Error | undefined;
  const detach = (reason: Error): void => {
    if (detached !== undefined) return;
    detached = reason;
    command.endBy("session", HANG_UP);
  };
  try {
    began(command);
    output.started(child.pid);
    for (const stream of ["stdout", "stderr"] as const) {
      child[stream]?.start({
        chunk: (bytes, release) => {
          if (detached === undefined) output.output(stream, bytes, release);
          else release();
        },
        end: () => {},
      });
    }
    using _listener = whenAborted(signal, () => detach(signal.reason as AgentError));
    new InputPump(child, activity).pump(input, (error) => {
      // If the client has disconnected, reading its input fails too. This error is ignored: the abort signal has the
      // reason.
      if (!signal.aborted) detach(error);
    });
    const result = await command.follow();
    if (detached !== undefined) throw detached;
    output.exit(result);
  } finally {
    attachment?.end();
    // If the agent ended the command, this end does not count as user activity. For example, after a restore the agent
    // ends the commands of clients that are long gone.
    if (!endedByAgent) activity.touch();
  }
}
