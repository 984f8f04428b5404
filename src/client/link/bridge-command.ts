import { type ChildProcessByStdio, spawn } from "node:child_process";
import { Socket } from "node:net";
import type { Readable, Stream, Writable } from "node:stream";

/** How long a command may take to leave once its connection is over, before it is told to, and then made to. */
const LEAVE_MS = 2_000;
/** What is kept of the command's complaints. */
const COMPLAINT_CHARS = 1_000;

/** The command of a bridge. */
export interface BridgeCommand {
  readonly program: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>> | undefined;
}

type Bridge = ChildProcessByStdio<Writable, Readable, Readable>;

/**
 * Runs the command for one connection: what comes from the socket is its standard input, its standard output goes to the
 * socket, each with its end and with backpressure. Neither keeps this process alive. `tell` hears why a command was no good
 * before the connection ends, and undefined when something comes from the other side: an earlier failure is over.
 */
export function joinToCommand(
  socket: Socket,
  command: BridgeCommand,
  tell: (failure: string | undefined) => void,
): void {
  socket.on("error", () => socket.destroy());
  socket.unref();
  let bridge: Bridge;
  try {
    bridge = spawn(command.program, command.args, {
      stdio: ["pipe", "pipe", "pipe"],
      ...(command.env && { env: { ...command.env } }),
    });
  } catch (error) {
    tell(startFailure(command, error));
    socket.destroy();
    return;
  }
  bridge.unref();
  for (const stream of [bridge.stdin, bridge.stdout, bridge.stderr]) keepNobodyAlive(stream);
  let complaint = "";
  let startError: Error | undefined;
  bridge.stderr.setEncoding("utf8").on("data", (text: string) => {
    complaint = (complaint + text).slice(-COMPLAINT_CHARS);
  });
  bridge.on("error", (error) => (startError = error));
  socket.pipe(bridge.stdin);
  bridge.stdout.once("data", () => tell(undefined));
  bridge.stdout.pipe(socket, { end: false });
  bridge.on("close", (code, signal) => {
    const failure =
      startError === undefined
        ? endFailure(command, { code, signal, complaint, saidNothing: socket.bytesWritten === 0 })
        : startFailure(command, startError);
    // The other end may be the one that ended it: then there is nothing to tell.
    if (failure !== undefined && !socket.readableEnded && !socket.destroyed) tell(failure);
    socket.end(() => socket.destroy());
  });
  socket.on("close", () => sendAway(bridge));
}

/** The connection is over: no input, no reader of the output, and no patience without end. */
function sendAway(bridge: Bridge): void {
  bridge.stdin.end();
  bridge.stdout.destroy();
  const timers = [
    setTimeout(() => bridge.kill("SIGTERM"), LEAVE_MS),
    setTimeout(() => bridge.kill("SIGKILL"), 2 * LEAVE_MS),
  ];
  for (const timer of timers) timer.unref();
  bridge.on("exit", () => {
    for (const timer of timers) clearTimeout(timer);
  });
}

function keepNobodyAlive(stream: Stream): void {
  stream.on("error", () => undefined);
  if (stream instanceof Socket) stream.unref();
}

function startFailure({ program }: BridgeCommand, error: unknown): string {
  const reason = error instanceof Error && "code" in error ? String(error.code) : "its arguments are not valid";
  return `cannot start the bridge command ${program}: ${reason}`;
}

interface End {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly complaint: string;
  readonly saidNothing: boolean;
}

/** A command that carried an answer and left with 0 has done its duty. */
function endFailure({ program }: BridgeCommand, { code, signal, complaint, saidNothing }: End): string | undefined {
  if (code === 0 && !saidNothing) return undefined;
  const end = signal === null ? `ended with status ${code}` : `was ended by ${signal}`;
  const said = complaint.trim().replaceAll(/\s*\n\s*/g, "; ");
  return `the bridge command ${program} ${end}${said === "" ? "" : `: ${said}`}`;
}
