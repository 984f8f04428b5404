import type { Readable } from "node:stream";
import { wholeNumber } from "../arguments.ts";
import type { CallOptions } from "../channel.ts";
import { failure } from "../errors.ts";
import type { ExecResult } from "./command.ts";
import type { ExecProcess } from "./process.ts";

/** Default limit of collected bytes, for each output. */
const DEFAULT_MAX_OUTPUT_BYTES = 100_000_000;

/** Options of `run`. */
export interface RunOptions extends CallOptions {
  /** Standard input; text is sent as UTF-8. Default: /dev/null, and for a terminal none. */
  readonly input?: Uint8Array | string | undefined;
  /** Bytes to collect of each output. A command that writes more is cancelled: RESOURCE_EXHAUSTED. Default: 100 MB. */
  readonly maxOutputBytes?: number | undefined;
  /**
   * Called with each piece of standard output as it comes. A promise holds up the next piece, and in the end the
   * command; an error cancels the command, and rejects the call.
   */
  readonly onStdout?: ((piece: Buffer) => unknown) | undefined;
  /** The same for standard error. */
  readonly onStderr?: ((piece: Buffer) => unknown) | undefined;
}

/** How a command ended, and its output. */
export interface RunResult extends ExecResult {
  readonly stdout: Buffer;
  readonly stderr: Buffer;
}

/** Sends a command's input and collects all of its output. Rejects with GuestError. */
export async function runToEnd(
  start: () => ExecProcess,
  { input, maxOutputBytes = DEFAULT_MAX_OUTPUT_BYTES, onStdout, onStderr }: RunOptions,
): Promise<RunResult> {
  const limit = wholeNumber(maxOutputBytes, "maxOutputBytes");
  const process = start();
  // A terminal always has an input: without an end, what reads it would wait for ever.
  process.stdin.end(input);
  const [result, stdout, stderr] = await Promise.all([
    process.wait(),
    collect(process, "stdout", limit, onStdout),
    collect(process, "stderr", limit, onStderr),
  ]);
  return { ...result, stdout, stderr };
}

/** Everything that an output delivers. `wait()` reports its failure. */
async function collect(
  process: ExecProcess,
  name: "stdout" | "stderr",
  limit: number,
  onPiece: RunOptions["onStdout"],
): Promise<Buffer> {
  const stream: Readable = process[name];
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > limit) {
      process.cancel();
      const message = `the command wrote more than ${limit} bytes to ${name} and was given up; raise maxOutputBytes, or read its streams with exec`;
      throw failure("RESOURCE_EXHAUSTED", "OUTPUT_TOO_LARGE", message);
    }
    chunks.push(chunk);
    try {
      await onPiece?.(chunk);
    } catch (error) {
      process.cancel();
      throw error;
    }
  }
  return Buffer.concat(chunks);
}
