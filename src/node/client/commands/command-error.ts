import { GuestError } from "../errors/errors.ts";
import type { CommandResult } from "./command.ts";

/** Limit on the characters of standard error that the message of a CommandError quotes. */
const SHOWN_CHARACTERS = 2_000;

/** Result and output of a command. */
export interface RunResult<Output extends string | Buffer = string> extends CommandResult {
  readonly stdout: Output;
  readonly stderr: Output;
}

/** The error of a command that was run with `check: true` and ended with an exit code other than 0. */
export class CommandError extends GuestError {
  override readonly name = "CommandError";
  /** The program and its arguments. The error message names only the program, because arguments may contain secrets. */
  readonly command: readonly string[];
  readonly exitCode: number;
  /** Name of the signal that ended the command; undefined if no signal ended it. */
  readonly signal: CommandResult["signal"];
  readonly timedOut: boolean;
  /** Everything that the command wrote to standard output, if `run` collected it; otherwise empty. */
  readonly stdout: string | Buffer;
  /**
   * Everything that the command wrote to standard error, as text unless `encoding` was "buffer". For a command that
   * `start` started, only the last 8 KiB of it.
   */
  readonly stderr: string | Buffer;
  /** The result with which the call would have resolved without `check`. */
  readonly result: RunResult<string | Buffer>;

  constructor(command: readonly string[], result: RunResult<string | Buffer>) {
    super({
      status: "FAILED_PRECONDITION",
      code: "COMMAND_FAILED",
      message: failedMessage(command, result),
      metadata: { exitCode: String(result.exitCode), ...(result.signal && { signal: result.signal }) },
    });
    this.command = command;
    this.exitCode = result.exitCode;
    this.signal = result.signal;
    this.timedOut = result.timedOut;
    this.stdout = result.stdout;
    this.stderr = result.stderr;
    this.result = result;
  }
}

function failedMessage([program = ""]: readonly string[], result: RunResult<string | Buffer>): string {
  const { exitCode, signal, timedOut, oomKilled } = result;
  const how = timedOut
    ? "was ended because it took longer than timeoutMs"
    : signal === undefined
      ? `failed with exit code ${exitCode}`
      : `was ended by ${signal}${oomKilled ? " (out of memory)" : ""}`;
  const all = result.stderr.toString().trimEnd();
  // Cut the text at a line break, if there is one, so that the message does not begin within a word.
  const end = all.slice(-SHOWN_CHARACTERS);
  const shown = all.length > end.length && end.includes("\n") ? end.slice(end.indexOf("\n") + 1) : end;
  return shown === "" ? `${program} ${how}` : `${program} ${how}: ${shown}`;
}
