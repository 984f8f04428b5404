import type { Readable, Writable } from "node:stream";
import { finished } from "node:stream/promises";
import type { ExecProcess, ExecResult } from "../../client/index.ts";
import { openKeyboard } from "./keyboard.ts";
import { followSize } from "./local-terminal.ts";
import { forwardSignals } from "./signals.ts";

/** A command and how the local process is joined to it. */
export interface Session {
  readonly process: ExecProcess;
  /** The local standard input is the command's. */
  readonly isInteractive: boolean;
  /** The command runs in a terminal. */
  readonly isTerminal: boolean;
  /** Byte that makes the next key one for guestctl, where the local terminal is raw; undefined: none does. */
  readonly escape: number | undefined;
}

/**
 * Joins the local standard streams, terminal and signals to a command until it has ended and its output is written.
 * Rejects with GuestError, and with CliError when the user leaves it.
 */
export async function attach(session: Session, host: NodeJS.Process): Promise<ExecResult> {
  const { process, isInteractive, isTerminal, escape } = session;
  using _signals = forwardSignals(process, isTerminal, host);
  using _size = isTerminal ? followSize(process, host) : undefined;
  using keyboard = isInteractive ? openKeyboard(process, isTerminal, escape, host) : undefined;
  const written = Promise.all([copy(process.stdout, host.stdout), copy(process.stderr, host.stderr)]);
  const ended = Promise.all([process.wait(), written]);
  try {
    const [result] = await (keyboard === undefined ? ended : Promise.race([ended, keyboard.left]));
    return result;
  } finally {
    process.cancel();
  }
}

/** Copies with backpressure and leaves the local stream open. What fails the source is told by `wait()`. */
async function copy(from: Readable, to: Writable): Promise<void> {
  from.pipe(to, { end: false });
  await finished(from);
}
