import { type ChildProcessByStdio, spawn } from "node:child_process";
import { Socket } from "node:net";
import type { Readable, Writable } from "node:stream";

/** A program whose standard input and output are connected to an agent. */
export interface ChildCommand {
  readonly program: string;
  readonly args: readonly string[];
  /** Environment of the program. Default: the environment of this process. */
  readonly env?: Readonly<Record<string, string | undefined>> | undefined;
}

export type Child = ChildProcessByStdio<Writable, Readable, Readable>;

/** Time from the end of a connection until its command gets SIGTERM, and from SIGTERM until SIGKILL. */
const LEAVE_MS = 2_000;

/**
 * Starts a command that does not keep this process alive. Throws if an argument is invalid or this process has too many
 * open files. Any other failure to start is reported by the child's event "error".
 */
export function startChild({ program, args, env }: ChildCommand): Child {
  const child = spawn(program, args, { stdio: ["pipe", "pipe", "pipe"], ...(env && { env: { ...env } }) });
  if ((child.stdin as Writable | undefined) === undefined) {
    // If too many files are open (EMFILE, ENFILE), Node returns a child without streams, and emits the error later.
    // Throw the error now, and ignore the later event.
    child.on("error", () => undefined);
    throw new Error("this process has too many open files");
  }
  child.unref();
  for (const stream of [child.stdin, child.stdout, child.stderr]) {
    // A broken pipe means that the program has ended. Its exit explains why, so ignore this error.
    stream.on("error", () => undefined);
    if (stream instanceof Socket) stream.unref();
  }
  return child;
}

/** Ends the command of a closed connection: closes its standard input and output, then sends SIGTERM, then SIGKILL. */
export function endChild(child: Child): void {
  child.stdin.end();
  child.stdout.destroy();
  const timers = [
    setTimeout(() => child.kill("SIGTERM"), LEAVE_MS),
    setTimeout(() => child.kill("SIGKILL"), 2 * LEAVE_MS),
  ];
  for (const timer of timers) timer.unref();
  child.on("exit", () => {
    for (const timer of timers) clearTimeout(timer);
  });
}
