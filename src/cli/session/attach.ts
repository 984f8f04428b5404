import type { Readable, Writable } from "node:stream";
import { finished } from "node:stream/promises";
import type { ExecProcess, ExecResult } from "../../client/index.ts";
import { forwardSignals } from "./signals.ts";
import { openRawTerminal } from "./raw-terminal.ts";

/** A command and how the local process is joined to it. */
export interface Session {
  readonly process: ExecProcess;
  /** The local standard input is the command's. */
  readonly isInteractive: boolean;
  /** The command runs in a terminal. */
  readonly isTerminal: boolean;
}

/** Joins the local standard streams, terminal and signals to a command until it has ended and its output is written. */
export async function attach(session: Session, host: NodeJS.Process): Promise<ExecResult> {
  const { process, isInteractive, isTerminal } = session;
  using _signals = forwardSignals(process, isTerminal, host);
  using _terminal = isTerminal ? openRawTerminal(process, isInteractive, host) : undefined;
  const written = Promise.all([copy(process.stdout, host.stdout), copy(process.stderr, host.stderr)]);
  if (isInteractive) host.stdin.pipe(process.stdin);
  try {
    const [result] = await Promise.all([process.wait(), written]);
    return result;
  } finally {
    if (isInteractive) {
      host.stdin.unpipe(process.stdin);
      host.stdin.pause();
    }
  }
}

/** Copies with backpressure and leaves the local stream open. What fails the source is told by `wait()`. */
async function copy(from: Readable, to: Writable): Promise<void> {
  from.pipe(to, { end: false });
  await finished(from);
}
