import { spawnSync } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import { StringDecoder } from "node:string_decoder";
import { messageOf } from "../../../shared/errors.ts";
import { failure, invalidOption } from "../errors/errors.ts";

/**
 * What a standard stream of a command is connected to, as in node:child_process. "pipe": the caller reads or writes the
 * stream of the returned process. "inherit": the same standard stream of this program. "ignore": output is read and
 * dropped, and input is empty.
 */
export type Stdio = "pipe" | "inherit" | "ignore";

/** One value for all three standard streams, or an array of three values: for input, output and error. */
export type StdioOption = Stdio | readonly [stdin: Stdio, stdout: Stdio, stderr: Stdio];

/** Options about the standard streams of a command. */
export interface StdioOptions {
  /**
   * "pipe", "inherit" or "ignore" for all three standard streams, or an array with a value for each. For standard
   * input, `input` and `stdin` take precedence. With "inherit" and a `terminal`, the local terminal is in raw mode
   * until the command ends, and the command's terminal has the same size as the local one. Default: ["ignore", "pipe",
   * "pipe"].
   */
  readonly stdio?: StdioOption | undefined;
}

/** Whether output is text. Throws GuestError (INVALID_ARGUMENT) for an encoding other than "utf8" and "buffer". */
export function isTextIn(encoding: "utf8" | "buffer" | undefined = "utf8"): boolean {
  const given: unknown = encoding;
  if (given === "utf8" || given === "buffer") return given === "utf8";
  throw invalidOption("encoding", `encoding is ${JSON.stringify(given)}; give "utf8" for text or "buffer" for bytes`);
}

/** Callbacks that receive the output of a command, piece by piece, while the command runs. */
export interface OutputListeners<Output extends string | Buffer = string> {
  /**
   * Called with each piece of standard output as it arrives; no piece ends within a character. If the callback returns
   * a promise, the next piece is delivered after the promise has resolved; meanwhile the command may be blocked,
   * because its output is not read. If the callback throws, the command is cancelled and the call rejects.
   */
  readonly onStdout?: ((piece: Output) => unknown) | undefined;
  /** Like `onStdout`, but for standard error. */
  readonly onStderr?: ((piece: Output) => unknown) | undefined;
}

/** Returns what each standard stream is connected to. Throws GuestError (INVALID_ARGUMENT) for an invalid option. */
export function stdioOf(given: StdioOption = ["ignore", "pipe", "pipe"]): readonly [Stdio, Stdio, Stdio] {
  const all: readonly unknown[] = Array.isArray(given) ? given : [given, given, given];
  const [stdin, stdout, stderr] = all;
  if (all.length === 3 && isStdio(stdin) && isStdio(stdout) && isStdio(stderr)) return [stdin, stdout, stderr];
  const message = `stdio requires "pipe", "inherit" or "ignore", or an array of three of these`;
  throw invalidOption("stdio", message);
}

function isStdio(value: unknown): value is Stdio {
  return value === "pipe" || value === "inherit" || value === "ignore";
}

/** Receives an output that the caller does not read itself. */
export interface OutputReader {
  /** Called with the bytes of each piece, before `onPiece` is called. */
  readonly onBytes?: ((bytes: Buffer) => unknown) | undefined;
  /** The caller's callback. It receives text if `isText` is true, and bytes otherwise. */
  readonly onPiece?: ((piece: never) => unknown) | undefined;
  /** Whether `onPiece` receives text. */
  readonly isText: boolean;
}

/** The readers of a command's outputs. The reader of an output is undefined if the caller reads that output itself. */
export interface OutputReaders {
  readonly stdout: OutputReader | undefined;
  readonly stderr: OutputReader | undefined;
}

/**
 * Returns the readers of a command's outputs.
 *
 * @param isBuffer whether the callbacks receive bytes
 */
export function readersOf(
  { stdio, onStdout, onStderr }: StdioOptions & OutputListeners<never>,
  isBuffer: boolean,
): OutputReaders {
  const [, stdout, stderr] = stdioOf(stdio);
  const readerOf = (
    name: "stdout" | "stderr",
    how: Stdio,
    onPiece: OutputListeners<never>["onStdout"],
  ): OutputReader | undefined =>
    how === "pipe" && onPiece === undefined
      ? undefined
      : {
          onPiece,
          isText: !isBuffer,
          onBytes: how === "inherit" ? (bytes) => written(name, bytes) : undefined,
        };
  return {
    stdout: readerOf("stdout", stdout, onStdout),
    stderr: readerOf("stderr", stderr, onStderr),
  };
}

/**
 * Writes bytes to an output of this program. Resolves when the output has accepted them. Rejects with GuestError if the
 * write fails.
 */
function written(name: "stdout" | "stderr", bytes: Buffer): Promise<void> {
  const stream = process[name];
  return new Promise((resolve, reject) => {
    const fail = (error: Error): void => {
      const message = `the ${name} of this program cannot be written: ${messageOf(error)}`;
      reject(failure("FAILED_PRECONDITION", "DESTINATION_FAILED", message, error));
    };
    // Without this listener, a closed pipe would end this program. The "error" event is emitted after the callback of
    // the write has run.
    stream.once("error", fail);
    stream.write(bytes, (error) => {
      if (error) {
        fail(error);
        return;
      }
      stream.off("error", fail);
      resolve();
    });
  });
}

/**
 * Reads an output of a command to its end and passes it to the reader's callbacks. Rejects with an error of the stream
 * or of a callback.
 *
 * @param onThrown called with the error that a callback has thrown, before this function rejects
 */
export async function readThrough(
  output: Readable,
  { onBytes, onPiece, isText }: OutputReader,
  onThrown: (error: unknown) => void,
): Promise<void> {
  const decoder = new StringDecoder("utf8");
  const pass = async (bytes: Buffer | undefined): Promise<void> => {
    try {
      if (bytes !== undefined) await onBytes?.(bytes);
      if (onPiece === undefined) return;
      const piece = !isText ? bytes : bytes === undefined ? decoder.end() : decoder.write(bytes);
      if (piece !== undefined && piece.length > 0) await onPiece(piece as never);
    } catch (error) {
      onThrown(error);
      throw error;
    }
  };
  for await (const bytes of output as AsyncIterable<Buffer>) await pass(bytes);
  await pass(undefined);
}

/**
 * Connects this program's standard input to a command's standard input. Returns a function to call when the command has
 * ended. That function restores the modes of this program's terminal, and lets this program exit although its standard
 * input is still open.
 *
 * @param onResize given if the command runs in a terminal: called with the new size of this program's terminal
 */
export function inheritInput(
  target: Writable,
  onResize: ((cols: number, rows: number) => void) | undefined,
): () => void {
  const { stdin, stdout } = process;
  const fail = (error: Error): void => void target.destroy(error);
  const resized = (): void => onResize?.(stdout.columns, stdout.rows);
  const isRaw = onResize !== undefined && stdin.isTTY;
  stdin.on("error", fail);
  if (onResize !== undefined && stdout.isTTY) stdout.on("resize", resized);
  if (isRaw) {
    stdin.setRawMode(true);
    // Node's raw mode (UV_TTY_MODE_RAW of libuv) still turns line feeds into CR LF, which garbles full-screen programs.
    spawnSync("stty", ["-opost"], { stdio: ["inherit", "ignore", "ignore"] });
  }
  stdin.pipe(target);
  return () => {
    stdin.unpipe(target);
    stdin.off("error", fail);
    stdout.off("resize", resized);
    if (isRaw) stdin.setRawMode(false);
  };
}
