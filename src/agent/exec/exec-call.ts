import { type Incoming, type ActivityClock, type AgentError, whenAborted } from "../domain/index.ts";
import { HANG_UP } from "../session/index.ts";
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

/** A started command, and what of its call it is connected to. */
export interface ExecCallParts extends Pick<CommandParts, "child" | "timeoutMs" | "sessionClock"> {
  readonly input: Incoming<CommandInput>;
  readonly output: ExecOutput;
  readonly activity: ActivityClock;
  readonly inTerminal: boolean;
  /** Aborted when the client is gone. */
  readonly signal: AbortSignal;
}

/**
 * Runs a command with its one client, from its start to its exit frame. Resolves once the exit has been handed to the
 * output, after every byte that the command wrote. Rejects when the client is gone or broke the frame order; by then
 * nothing of the command's session is alive.
 *
 * @param began gets the command, which the agent may end from then on
 */
export async function runCall(parts: ExecCallParts, began: (command: RunningCommand) => void): Promise<void> {
  const { child, input, output, activity, inTerminal, signal } = parts;
  // In a terminal only typing counts as activity: a forgotten shell must not keep the sandbox awake.
  const attachment = inTerminal ? undefined : activity.attach();
  let endedByAgent = false;
  const onEnding = (): void => {
    endedByAgent = true;
    attachment?.cut();
  };
  const command = new RunningCommand({ ...parts, onEnding });
  /** Why the client no longer gets frames; undefined while it does. */
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
    new InputPump(child, activity).carry(input, (error) => {
      // A lost client also ends the input; the signal reports the loss, with its reason.
      if (!signal.aborted) detach(error);
    });
    const result = await command.follow();
    if (detached !== undefined) throw detached;
    output.exit(result);
  } finally {
    attachment?.end();
    // The agent's own ending of a command is no activity: after a restore it ends those whose clients are long gone.
    if (!endedByAgent) activity.touch();
  }
}
