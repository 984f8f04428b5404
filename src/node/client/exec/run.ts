import { StringDecoder } from "node:string_decoder";
import { wholeNumber } from "../arguments.ts";
import type { CallOptions } from "../channel.ts";
import { failure, GuestError } from "../errors.ts";
import type { CommandOptions, CommandResult } from "./command.ts";
import type { KeepOptions, KeptOptions } from "./keep.ts";
import type { GuestProcess } from "./process.ts";

/** Default limit on the collected bytes of each output. */
const DEFAULT_MAX_OUTPUT_BYTES = 100_000_000;
/** Limit on the standard error in the message of a CommandError. */
const SHOWN_CHARACTERS = 2_000;

/** Options of `run` that do not depend on the encoding. */
export interface RunSettings extends CommandOptions, CallOptions, KeptOptions {
  /** Standard input; text is sent as UTF-8. Default: /dev/null, or an empty input for a command in a terminal. */
  readonly input?: Uint8Array | string | undefined;
  /** Keep the command if the connection is lost; with `resume`, the call then continues. Default: not kept. */
  readonly keep?: KeepOptions | undefined;
  /**
   * Reject with CommandError unless the exit code is 0. Default: false, so that every command that ran has a result,
   * however it ended.
   */
  readonly check?: boolean | undefined;
  /**
   * Limit on the collected bytes of each output. A command that writes more is cancelled, and the call rejects with
   * RESOURCE_EXHAUSTED. Infinity: no limit. Default: 100 MB.
   */
  readonly maxOutputBytes?: number | undefined;
}

/** Options of `run`. */
export interface RunOptions<Output extends string | Buffer = string> extends RunSettings {
  /** "utf8" (default): the output is text, in which U+FFFD replaces invalid bytes. "buffer": the output is bytes. */
  readonly encoding?: (Output extends string ? "utf8" : "buffer") | undefined;
  /**
   * Called with each piece of standard output as it arrives; characters are never split. If it returns a promise, the
   * next piece waits for it, and so may the command. If it throws, the command is cancelled and the call rejects.
   */
  readonly onStdout?: ((piece: Output) => unknown) | undefined;
  /** Like `onStdout`, for standard error. */
  readonly onStderr?: ((piece: Output) => unknown) | undefined;
}

/** Result and output of a command. */
export interface RunResult<Output extends string | Buffer = string> extends CommandResult {
  readonly stdout: Output;
  readonly stderr: Output;
}

/** The rejection of `run` with `check: true`: the command ran, and did not end with exit code 0. */
export class CommandError extends GuestError {
  /** The command with its arguments. They may contain secrets, so the message has only the program's name. */
  readonly command: readonly string[];
  readonly exitCode: number;
  /** Name of the signal that ended the command, if one did. */
  readonly signal: CommandResult["signal"];
  readonly timedOut: boolean;
  /** Everything that the command wrote. */
  readonly stdout: string | Buffer;
  readonly stderr: string | Buffer;
  /** The whole result. */
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
    ? "was ended at its timeoutMs"
    : signal === undefined
      ? `failed with exit code ${exitCode}`
      : `was ended by ${signal}${oomKilled ? " (out of memory)" : ""}`;
  const all = result.stderr.toString().trimEnd();
  // Cut at a line, if there is one, so that the message does not begin within a word.
  const end = all.slice(-SHOWN_CHARACTERS);
  const shown = all.length > end.length && end.includes("\n") ? end.slice(end.indexOf("\n") + 1) : end;
  return `${program} ${how}${shown === "" ? "" : `: ${shown}`}`;
}

/** Sends a process its input and collects all of its output. Rejects with GuestError. */
export async function runToEnd(
  command: readonly string[],
  start: () => GuestProcess,
  { encoding, check, maxOutputBytes = DEFAULT_MAX_OUTPUT_BYTES, onStdout, onStderr }: RunOptions | RunOptions<Buffer>,
): Promise<RunResult<string | Buffer>> {
  const limitBytes =
    maxOutputBytes === Number.POSITIVE_INFINITY ? maxOutputBytes : wholeNumber(maxOutputBytes, "maxOutputBytes");
  const process = start();
  // A terminal always has an input: without an end of input, a command that reads it would wait indefinitely.
  process.stdin.end();
  const how = { limitBytes, isText: encoding !== "buffer" };
  const [result, stdout, stderr] = await Promise.all([
    process.wait(),
    collect(process, "stdout", how, onStdout as PieceListener),
    collect(process, "stderr", how, onStderr as PieceListener),
  ]);
  const whole = { ...result, stdout, stderr };
  if (check === true && result.exitCode !== 0) throw new CommandError(command, whole);
  return whole;
}

type PieceListener = ((piece: string | Buffer) => unknown) | undefined;

/** Collects an output to its end. If the command fails, `wait()` reports it. */
async function collect(
  process: GuestProcess,
  name: "stdout" | "stderr",
  { limitBytes, isText }: { readonly limitBytes: number; readonly isText: boolean },
  onPiece: PieceListener,
): Promise<string | Buffer> {
  const chunks: Buffer[] = [];
  const decoder = new StringDecoder("utf8");
  const report = async (piece: string | Buffer): Promise<void> => {
    try {
      if (piece.length > 0) await onPiece?.(piece);
    } catch (error) {
      process.cancel();
      throw error;
    }
  };
  let bytes = 0;
  for await (const chunk of process[name] as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > limitBytes) {
      process.cancel();
      const message = `the command wrote more than ${limitBytes} bytes to ${name} and was cancelled; raise maxOutputBytes, or read its streams with start`;
      throw failure("RESOURCE_EXHAUSTED", "OUTPUT_TOO_LARGE", message);
    }
    chunks.push(chunk);
    if (onPiece !== undefined) await report(isText ? decoder.write(chunk) : chunk);
  }
  if (onPiece !== undefined && isText) await report(decoder.end());
  const all = Buffer.concat(chunks);
  return isText ? all.toString() : all;
}
