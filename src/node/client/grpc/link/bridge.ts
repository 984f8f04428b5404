import { type ChildProcessByStdio, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server, Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable, Stream, Writable } from "node:stream";
import { type ChannelCredentials, type ChannelOptions, credentials } from "@grpc/grpc-js";
import { failure, invalidOption } from "../../errors/errors.ts";
import type { Cause } from "../grpc-texts.ts";
import { HEAD_BYTES, quotedLine, unlikeHttp2 } from "./first-bytes.ts";
import type { BridgeOptions, Link } from "./link.ts";

/**
 * Connects through a command, which is started once for each connection. Because grpc-js can only dial sockets, this
 * class listens on a private unix socket, and grpc-js dials that.
 */
export class BridgeLink implements Link {
  readonly target: string;
  readonly credentials: ChannelCredentials = credentials.createInsecure();
  /** Each attempt starts a process, so the pauses between attempts are longer than for sockets. */
  readonly options: ChannelOptions = {
    "grpc.initial_reconnect_backoff_ms": 250,
    "grpc.max_reconnect_backoff_ms": 10_000,
  };
  readonly #directory: string;
  readonly #server: Server;
  #failure: string | undefined;
  /** Whether `#failure` was caused by the end of a bridge command. */
  #hasEnded = false;

  /** Throws GuestError if the command is missing or the directory for the socket cannot be created. */
  constructor({ bridge, env }: Omit<BridgeOptions, "token">) {
    const [program, ...args] = Array.isArray(bridge) ? (bridge as readonly string[]) : [];
    if (!program) throw invalidOption("bridge", "bridge must be a list with the command and its arguments");
    for (const [index, word] of [program, ...args].entries()) checkWord(word, "bridge", `bridge[${index}]`);
    // Do not print the value of the variable in the message, because it may be a secret.
    for (const [name, value = ""] of Object.entries(env ?? {})) checkWord(value, "env", `the value of ${name} in env`);
    this.#directory = privateDirectory();
    const path = join(this.#directory, "bridge.sock");
    this.target = `unix:${path}`;
    this.#server = createServer({ allowHalfOpen: true }, (socket) => {
      // The failure to report as long as the agent has not answered. If an earlier command has ended with a failure,
      // keep that failure, because it says more: grpc-js starts the next command soon, and that one has printed little
      // so far.
      this.#failure ??= `the bridge command ${program} does not answer`;
      joinToCommand(socket, { program, args, env }, (why, isFinal) => {
        if (isFinal) this.#hasEnded = why !== undefined;
        if (isFinal || !this.#hasEnded) this.#failure = why;
      });
    });
    this.#server.on("error", (error) => {
      this.#failure = `cannot listen on ${path}: ${error.message}; TMPDIR must name a directory with a short path`;
    });
    // With `exclusive`, a worker of node:cluster binds the socket itself and immediately. Without it, the worker would
    // send a request to the primary process, which would bind the socket later.
    this.#server.listen({ path, exclusive: true });
    this.#server.unref();
  }

  failure(): Cause | undefined {
    return this.#failure === undefined ? undefined : { code: "BRIDGE_FAILED", message: this.#failure };
  }

  close(): void {
    this.#server.close();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

function privateDirectory(): string {
  try {
    return mkdtempSync(join(tmpdir(), "guest-agent-bridge-"));
  } catch (cause) {
    const message = `cannot create a directory for the bridge in ${tmpdir()}; set TMPDIR to a writable directory`;
    throw failure("UNAVAILABLE", "BRIDGE_FAILED", message, cause);
  }
}

/**
 * How long a command may continue after its connection has closed, before it gets SIGTERM, and after that, before it
 * gets SIGKILL.
 */
const LEAVE_MS = 2_000;
/** How long to wait for an error on standard error from a command that does not speak HTTP/2. */
const COMPLAINT_MS = 200;
/** Limit on the characters that are kept of the end of the command's standard error. */
const COMPLAINT_CHARS = 1_000;

interface BridgeCommand {
  readonly program: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>> | undefined;
}

type Bridge = ChildProcessByStdio<Writable, Readable, Readable>;

/**
 * Runs the command for one connection. Pipes the socket's input to the command's standard input, and the command's
 * standard output to the socket. Both pipes pass on EOF and backpressure. Neither the command nor the socket keeps this
 * process alive.
 *
 * Calls `tell` with the reason and `isFinal` when the command fails, before the connection ends. Until the command
 * speaks HTTP/2, also calls `tell` without `isFinal`, for each message of the command on standard error. As soon as the
 * command speaks HTTP/2, calls `tell` with undefined and `isFinal`, because any earlier failure is then obsolete.
 */
function joinToCommand(
  socket: Socket,
  command: BridgeCommand,
  tell: (failure: string | undefined, isFinal: boolean) => void,
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
    tell(startFailure(command, error), true);
    socket.destroy();
    return;
  }
  bridge.unref();
  for (const stream of [bridge.stdin, bridge.stdout, bridge.stderr]) keepNobodyAlive(stream);
  let complaint = "";
  let startError: Error | undefined;
  let isJoined = false;
  bridge.stderr.setEncoding("utf8").on("data", (text: string) => {
    complaint = (complaint + text).slice(-COMPLAINT_CHARS);
    if (!isJoined) tell(failureWords(command, "says nothing", complaint), false);
  });
  bridge.on("error", (error) => (startError = error));
  socket.pipe(bridge.stdin);
  let first: Buffer = Buffer.alloc(0);
  const receiveFirst = (bytes: Buffer): void => {
    first = Buffer.concat([first, bytes]);
    const said = unlikeHttp2(first);
    if (said !== undefined) {
      // Wait, because the command's message on standard error may arrive a moment later.
      bridge.stdout.off("data", receiveFirst).resume();
      const refuse = (): void => {
        tell(failureWords(command, `does not speak HTTP/2: it printed ${said}`, complaint), true);
        socket.destroy();
      };
      const late = setTimeout(refuse, COMPLAINT_MS).unref();
      bridge.once("close", () => clearTimeout(late));
    } else if (first.length >= HEAD_BYTES) {
      isJoined = true;
      tell(undefined, true);
      bridge.stdout.off("data", receiveFirst);
      socket.write(first);
      bridge.stdout.pipe(socket, { end: false });
    }
  };
  bridge.stdout.on("data", receiveFirst);
  bridge.on("close", (code, signal) => {
    // If grpc-js ended the connection, the command's exit is not a failure.
    if (!socket.readableEnded && !socket.destroyed) {
      if (startError !== undefined) tell(startFailure(command, startError), true);
      else if (code !== 0 || !isJoined || complaint !== "") {
        const end = signal === null ? `ended with status ${code}` : `was ended by ${signal}`;
        const printed =
          isJoined || first.length === 0 ? "" : `, after it printed ${quotedLine(first)} instead of HTTP/2`;
        tell(failureWords(command, `${end}${printed}`, complaint), true);
      }
    }
    socket.end(() => socket.destroy());
  });
  socket.on("close", () => sendAway(bridge));
}

/** Ends the command of a closed connection: closes its standard input and output, then sends SIGTERM, then SIGKILL. */
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

/** Describes the failure of a started command, with the end of its standard error. */
function failureWords({ program }: BridgeCommand, what: string, complaint: string): string {
  const said = complaint.trim().replaceAll(/\s*\n\s*/g, "; ");
  return `the bridge command ${program} ${what}${said === "" ? "" : `: ${said}`}`;
}

/** Throws GuestError (INVALID_ARGUMENT) for a word that cannot be passed to a command (execve(2)). */
function checkWord(word: unknown, option: string, what: string): void {
  if (typeof word !== "string") throw invalidOption(option, `${what} is not text`);
  if (word.includes("\0")) throw invalidOption(option, `${what} contains a NUL character`);
}
