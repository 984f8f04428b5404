import { wholeNumber } from "../arguments.ts";
import type { CallOptions } from "../grpc/channel.ts";
import { failure } from "../errors/errors.ts";
import type { CommandOptions } from "./command.ts";
import { CommandError, type RunResult } from "./command-error.ts";
import type { KeepOptions, KeptOptions } from "./keep.ts";
import type { GuestProcess } from "./process.ts";
import {
  isTextIn,
  type OutputListeners,
  type OutputReader,
  type OutputReaders,
  readersOf,
  type Stdio,
  type StdioOptions,
  stdioOf,
} from "./stdio.ts";

/** Default limit on the collected bytes of each output. */
const DEFAULT_MAX_OUTPUT_BYTES = 100_000_000;

/** Options of `run` that do not depend on the encoding. */
export interface RunSettings extends CommandOptions, CallOptions, KeptOptions, StdioOptions {
  /** Standard input; text is sent as UTF-8. Default: /dev/null, or an empty input for a command in a terminal. */
  readonly input?: Uint8Array | string | undefined;
  /**
   * Keep the command running if the connection is lost. With the option `resume`, the call then reconnects and
   * continues. To lose no output, set `whenFull: "block"`: by default, the agent drops the oldest output if the command
   * writes faster than this call reads, and the result has `outputComplete: false`. Default: the command is not kept.
   */
  readonly keep?: KeepOptions | undefined;
  /**
   * Reject with CommandError unless the exit code is 0. Default: false, so that the call resolves with a result however
   * the command ended.
   */
  readonly check?: boolean | undefined;
  /**
   * Limit on the collected bytes of each output. A command that writes more is cancelled, and the call rejects with
   * RESOURCE_EXHAUSTED. Infinity means no limit. Default: 100 MB.
   */
  readonly maxOutputBytes?: number | undefined;
}

/** Options of `run`. */
export interface RunOptions<Output extends string | Buffer = string> extends RunSettings, OutputListeners<Output> {
  /** "utf8" (default): the output is text, in which U+FFFD replaces invalid bytes. "buffer": the output is bytes. */
  readonly encoding?: (Output extends string ? "utf8" : "buffer") | undefined;
}

/** Runs a command to its end and collects all of its output. Rejects with GuestError. */
export async function runToEnd(
  command: readonly string[],
  start: (readers: OutputReaders) => GuestProcess,
  options: RunOptions | RunOptions<Buffer>,
): Promise<RunResult<string | Buffer>> {
  const { encoding, check, maxOutputBytes = DEFAULT_MAX_OUTPUT_BYTES, stdio } = options;
  const isText = isTextIn(encoding);
  const limitBytes =
    maxOutputBytes === Number.POSITIVE_INFINITY ? maxOutputBytes : wholeNumber(maxOutputBytes, "maxOutputBytes");
  const [input, ...outputs] = stdioOf(stdio);
  const readers = readersOf(options, !isText);
  const collected = { stdout: new Collected("stdout", limitBytes), stderr: new Collected("stderr", limitBytes) };
  const readerOf = (name: "stdout" | "stderr", how: Stdio | undefined): OutputReader | undefined =>
    how === "pipe" ? { isText, ...readers[name], onBytes: (bytes) => collected[name].add(bytes) } : readers[name];
  const process = start({ stdout: readerOf("stdout", outputs[0]), stderr: readerOf("stderr", outputs[1]) });
  // End the standard input even if the caller gives no input. A command in a terminal always has a standard input, and
  // without EOF a read from it would wait indefinitely.
  if (input !== "inherit" || options.input !== undefined) process.stdin.end();
  const result = await process.wait();
  const [stdout, stderr] = [collected.stdout.all(isText), collected.stderr.all(isText)];
  const whole = { ...result, stdout, stderr };
  if (check === true && result.exitCode !== 0) throw new CommandError(command, whole);
  return whole;
}

/** The collected bytes of an output. */
class Collected {
  readonly #name: string;
  readonly #limitBytes: number;
  readonly #pieces: Buffer[] = [];
  #bytes = 0;

  constructor(name: string, limitBytes: number) {
    this.#name = name;
    this.#limitBytes = limitBytes;
  }

  /** Adds a piece of output. Throws GuestError if the output then exceeds the limit. */
  add(piece: Buffer): void {
    this.#bytes += piece.length;
    if (this.#bytes > this.#limitBytes) {
      const message = `the command wrote more than ${this.#limitBytes} bytes to ${this.#name} and was cancelled; raise maxOutputBytes, or use start() and read its streams`;
      throw failure("RESOURCE_EXHAUSTED", "OUTPUT_TOO_LARGE", message);
    }
    this.#pieces.push(piece);
  }

  all(isText: boolean): string | Buffer {
    const all = Buffer.concat(this.#pieces);
    return isText ? all.toString() : all;
  }
}
